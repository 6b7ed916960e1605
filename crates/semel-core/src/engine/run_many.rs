//! Many keys at once: one batch claim, then each on its own.

use std::{collections::HashSet, future::Future, sync::Arc};

use futures_util::future::join_all;
use serde::{Serialize, de::DeserializeOwned};
use tracing::Instrument;

use super::{
    Answer, Context, Engine, RunError,
    release_on_drop::Custody,
    run::{Asked, Work, crowded, process_span, unanswered},
    singleflight::{Boarding, Landing, Lead, Seat},
};
use crate::{
    Claim, ClaimRequest, Fingerprint, Key, KeyHash, Result, Verdict, WorkError, background,
    sync::Instant,
    telemetry::{self, Tier},
};

/// A key this call has to see through.
struct Leg {
    lead: Lead,
    request: ClaimRequest,
    work: Work,
}

/// Where an item waits for its answer.
struct Place {
    key: KeyHash,
    seat: Option<Seat>,
    leads: bool,
}

impl Engine {
    /// [`Engine::run`] for many items: their keys are claimed in one batch, their work runs at the
    /// same time, and each outcome is recorded as soon as it is there. Answers come in the order of
    /// the items; twins run once.
    pub async fn run_many<I, T, E, F, Fut>(
        &self,
        items: Vec<(Key, Fingerprint, I)>,
        work: F,
    ) -> Vec<Result<Answer<T>, RunError>>
    where
        I: Send + 'static,
        F: Fn(I, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned,
        E: Into<WorkError>,
    {
        if let Err(error) = self.check_open() {
            return items.iter().map(|_| Err(RunError::Store(error.clone()))).collect();
        }
        let work = Arc::new(work);
        let (mut places, mut legs) = (Vec::with_capacity(items.len()), Vec::<Leg>::new());
        let mut led = HashSet::new();
        for (key, fingerprint, item) in items {
            let request = self.claim_request(&key, &fingerprint.into());
            let key = request.key;
            let id = (key, request.fingerprint);
            let (seat, leads) = match self.inner.flights.board(id) {
                Boarding::Lead(lead) => {
                    let seat = lead.seat();
                    let work = self.work_on(item, work.clone());
                    legs.push(Leg { lead, request, work });
                    led.insert(id);
                    (Some(seat), true)
                }
                Boarding::Follow(seat) if led.contains(&id) => (Some(seat.of_twin()), false),
                Boarding::Follow(seat) => (Some(seat), false),
                Boarding::Full => (None, false),
            };
            places.push(Place { key, seat, leads });
        }
        if !legs.is_empty() {
            self.inner.tasks.spawn(self.clone().take_off(legs).in_current_span());
        }
        let landings = join_all(places.into_iter().map(|place| self.land_at(place))).await;
        landings.into_iter().map(|landing| landing?.typed()).collect()
    }

    fn work_on<I, T, E, F, Fut>(&self, item: I, work: Arc<F>) -> Work
    where
        I: Send + 'static,
        F: Fn(I, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize,
        E: Into<WorkError>,
    {
        let classifier = self.inner.classifier.clone();
        Box::new(move |context| {
            Box::pin(async move {
                match work(item, context).await {
                    Ok(value) => Verdict::success(&value),
                    Err(error) => Verdict::of_error(error.into(), &*classifier),
                }
            })
        })
    }

    async fn take_off(self, legs: Vec<Leg>) {
        let began = Instant::now();
        let (requests, crews): (Vec<_>, Vec<_>) = legs
            .into_iter()
            .map(|Leg { lead, request, work }| {
                let custody = Custody::asking(self.clone(), &request);
                (request, (lead, work, custody))
            })
            .unzip();
        let answers = self.ask_many(&requests).await;
        let asked = requests.into_iter().zip(answers).zip(crews);
        for ((request, answer), (lead, work, mut custody)) in asked {
            let span = process_span(&request.key, &self.policy);
            match &answer {
                Some(answer) => custody.answered(answer),
                None => custody.unanswered(),
            }
            let answer = answer.unwrap_or_else(|| Err(unanswered()));
            let asked = Asked { request: Box::new(request), answer, began, sent: began, custody };
            // Each on its own from here: nobody waits for a neighbour's claim to be answered.
            let engine = self.clone();
            let flight = async move {
                let asked = engine.clone().ask_again(asked).await;
                engine.fly(lead, asked, work).await;
            };
            self.inner.tasks.spawn(flight.instrument(span));
        }
    }

    /// One call for all. Answers that do not come in time are given back one by one.
    async fn ask_many(&self, requests: &[ClaimRequest]) -> Vec<Option<Result<Claim>>> {
        let patience = self.patience(Instant::now());
        let (store, batch) = (self.inner.store.clone(), requests.to_vec());
        let late: Vec<_> = requests.iter().map(|request| self.give_back_late(request)).collect();
        let call = Box::pin(async move { store.claim_many(&batch).await });
        let give_back = |answers: Vec<Result<Claim>>| {
            answers.into_iter().zip(late).for_each(|(answer, give_back)| give_back(answer));
        };
        match background::within(patience, call, give_back).await {
            Some(answers) => {
                self.count(&answers);
                answers.into_iter().map(Some).collect()
            }
            None => {
                self.count(&[]);
                requests.iter().map(|_| None).collect()
            }
        }
    }

    async fn land_at(&self, place: Place) -> Landing {
        let Some(seat) = place.seat else {
            return Err(crowded());
        };
        let landing = seat.landing(self.policy.wait).await;
        if landing.is_ok() && !place.leads {
            telemetry::replayed(&place.key, Tier::Wait, None);
        }
        landing
    }
}
