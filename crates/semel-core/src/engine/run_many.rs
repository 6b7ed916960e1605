//! `run_many`: claims the keys of many items in one batch; from then on each item is a call of its own.

use std::{collections::HashSet, future::Future, sync::Arc};

use futures_util::future::join_all;
use serde::{Serialize, de::DeserializeOwned};
use tracing::Instrument;

use super::{
    Answer, Context, Engine, RunError,
    claim::{ClaimCall, claim_timed_out},
    release_on_drop::ReleaseOnDrop,
    run::{BoxedWork, process_span, too_many_followers},
    singleflight::{CallResult, CallRole, Leader, ResultReceiver},
};
use crate::{
    Claim, ClaimRequest, Fingerprint, Key, KeyHash, Result, Verdict, WorkError, background,
    sync::Instant,
    telemetry::{self, Tier},
};

/// An item of which this call is the leader.
struct LedItem {
    leader: Leader,
    request: ClaimRequest,
    work: BoxedWork,
}

/// How an item gets its result.
struct ItemResult {
    key: KeyHash,
    /// `None`: too many callers follow already.
    receiver: Option<ResultReceiver>,
    is_leader: bool,
}

impl Engine {
    /// [`Engine::run`] for many items: their keys are claimed in one batch, their work runs at the
    /// same time, and each outcome is recorded as soon as it is there. Answers come in the order of
    /// the items; the work of equal items runs once.
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
        let (mut results, mut led_items) = (Vec::with_capacity(items.len()), Vec::<LedItem>::new());
        let mut led = HashSet::new();
        for (key, fingerprint, item) in items {
            let request = self.claim_request(&key, &fingerprint.into());
            let key = request.key;
            let id = (key, request.fingerprint);
            let (receiver, is_leader) = match self.inner.in_flight.join(id) {
                CallRole::Leader(leader) => {
                    let receiver = leader.subscribe();
                    let work = self.work_on(item, work.clone());
                    led_items.push(LedItem { leader, request, work });
                    led.insert(id);
                    (Some(receiver), true)
                }
                CallRole::Follower(receiver) if led.contains(&id) => {
                    (Some(receiver.for_duplicate()), false)
                }
                CallRole::Follower(receiver) => (Some(receiver), false),
                CallRole::TooManyFollowers => (None, false),
            };
            results.push(ItemResult { key, receiver, is_leader });
        }
        if !led_items.is_empty() {
            self.inner.tasks.spawn(self.clone().lead_all(led_items).in_current_span());
        }
        let results = join_all(results.into_iter().map(|item| self.item_result(item))).await;
        results.into_iter().map(|result| result?.typed()).collect()
    }

    fn work_on<I, T, E, F, Fut>(&self, item: I, work: Arc<F>) -> BoxedWork
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

    async fn lead_all(self, items: Vec<LedItem>) {
        let began = Instant::now();
        let (requests, items): (Vec<_>, Vec<_>) = items
            .into_iter()
            .map(|LedItem { leader, request, work }| {
                let release_on_drop = ReleaseOnDrop::new(self.clone(), &request);
                (request, (leader, work, release_on_drop))
            })
            .unzip();
        let replies = self.claim_batch(&requests).await;
        let claims = requests.into_iter().zip(replies).zip(items);
        for ((request, reply), (leader, work, mut release_on_drop)) in claims {
            let span = process_span(&request.key, &self.policy);
            match &reply {
                Some(reply) => release_on_drop.claim_replied(reply),
                None => release_on_drop.claim_timed_out(),
            }
            let (request, reply) =
                (Box::new(request), reply.unwrap_or_else(|| Err(claim_timed_out())));
            let claim = ClaimCall { request, reply, began, sent: began, release_on_drop };
            // Each item has a task of its own from here, so that none waits for the claim of another item.
            let engine = self.clone();
            let call = async move {
                let claim = engine.clone().retry_claim(claim).await;
                engine.finish_call(leader, claim, work).await;
            };
            self.inner.tasks.spawn(call.instrument(span));
        }
    }

    /// One call for all claims. Grants that come too late are given back one by one.
    async fn claim_batch(&self, requests: &[ClaimRequest]) -> Vec<Option<Result<Claim>>> {
        let patience = self.patience(Instant::now());
        let (store, batch) = (self.inner.store.clone(), requests.to_vec());
        let late: Vec<_> = requests.iter().map(|request| self.on_late_reply(request)).collect();
        let call = Box::pin(async move { store.claim_many(&batch).await });
        let on_late_replies = |replies: Vec<Result<Claim>>| {
            replies.into_iter().zip(late).for_each(|(reply, on_late_reply)| on_late_reply(reply));
        };
        match background::timeout_without_cancel(patience, call, on_late_replies).await {
            Some(replies) => {
                self.count_claim_call(&replies);
                replies.into_iter().map(Some).collect()
            }
            None => {
                self.count_claim_call(&[]);
                requests.iter().map(|_| None).collect()
            }
        }
    }

    async fn item_result(&self, item: ItemResult) -> CallResult {
        let Some(receiver) = item.receiver else {
            return Err(too_many_followers());
        };
        let result = receiver.result(self.policy.wait).await;
        if result.is_ok() && !item.is_leader {
            telemetry::replayed(&item.key, Tier::Wait, None);
        }
        result
    }
}
