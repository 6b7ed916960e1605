//! Many keys at once: one batch claim, then each on its own.

use std::{future::Future, sync::Arc};

use futures_util::future::join_all;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;
use tracing::Instrument;

use super::{
    Answer, Context, Engine, Inner, RunError,
    flight::{Boarding, Landing, Lead, Seat},
    run::{Asked, Work, disown, process_span},
    wait::pause,
};
use crate::{
    Claim, ClaimRequest, Fingerprint, Key, KeyHash, Policy, Result, Verdict, WorkError,
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
        let (mut places, mut legs) = (Vec::with_capacity(items.len()), Vec::new());
        for (key, fingerprint, item) in items {
            let request = self.claim_request(&key, &fingerprint);
            let key = request.key;
            let (seat, leads) = match self.inner.flights.board((key, request.fingerprint)) {
                Boarding::Lead(lead) => {
                    let seat = lead.seat();
                    let work = self.work_on(item, work.clone());
                    legs.push(Leg { lead, request, work });
                    (Some(seat), true)
                }
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
        let (requests, crews): (Vec<_>, Vec<_>) =
            legs.into_iter().map(|leg| (leg.request, (leg.lead, leg.work))).unzip();
        let answers = ask_many(&self.inner, &self.policy, requests).await;
        for (asked, (lead, work)) in answers.into_iter().zip(crews) {
            let span = process_span(&asked.request.key, &self.policy);
            self.inner.tasks.spawn(self.clone().fly(lead, asked, work).instrument(span));
        }
    }

    async fn land_at(&self, place: Place) -> Landing {
        let Some(seat) = place.seat else {
            return Err(RunError::Busy { retry_after: self.policy.lease });
        };
        let landing = seat.landing(self.policy.wait).await;
        if landing.is_ok() && !place.leads {
            telemetry::replayed(&place.key, Tier::Wait, None);
        }
        landing
    }
}

/// Claims until every answer is definite, each with its own nonce.
async fn ask_many(inner: &Arc<Inner>, policy: &Policy, requests: Vec<ClaimRequest>) -> Vec<Asked> {
    let at = Instant::now();
    let mut answers = inner.store.claim_many(&requests).await;
    let mut tries = 0;
    loop {
        let open: Vec<usize> = (0..answers.len()).filter(|i| is_open(&answers[*i])).collect();
        if open.is_empty() {
            break;
        }
        if at.elapsed() >= policy.wait {
            open.iter().for_each(|i| disown(inner, policy, &requests[*i]));
            break;
        }
        pause(&mut tries).await;
        let again: Vec<ClaimRequest> = open.iter().map(|i| requests[*i].clone()).collect();
        for (i, answer) in open.into_iter().zip(inner.store.claim_many(&again).await) {
            answers[i] = answer;
        }
    }
    requests
        .into_iter()
        .zip(answers)
        .map(|(request, answer)| Asked { request, at, answer })
        .collect()
}

fn is_open(answer: &Result<Claim>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind().is_indefinite())
}
