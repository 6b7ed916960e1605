//! A store that fails on demand.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure, Error,
    ErrorKind, Forgetting, KeyHash, ListQuery, MemoryStore, Purged, Record, Release,
    ReleaseRequest, RenewRequest, Renewal, Resolution, ResolveRequest, Result, Sighting, Stats,
    Store, StoreInfo,
};

/// How a step fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StepFault {
    /// The step does not reach the store.
    Down,
    /// The step happens, but its reply is lost.
    ReplyLost,
    /// The step never returns.
    Hangs,
    /// The store panics.
    Panics,
}

/// A memory store with faults by step. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyStore {
    pub(crate) inner: MemoryStore,
    faults: Arc<Mutex<HashMap<&'static str, (StepFault, usize)>>>,
    calls: Arc<Mutex<HashMap<&'static str, usize>>>,
    delay: Arc<Mutex<Duration>>,
    unreachable: Arc<Mutex<Option<KeyHash>>>,
    is_shared: bool,
}

impl FaultyStore {
    /// A store that other processes share.
    pub(crate) fn shared() -> Self {
        Self { is_shared: true, ..Self::default() }
    }

    /// One process's way to records that others have, too.
    pub(crate) fn over(inner: MemoryStore) -> Self {
        Self { inner, ..Self::shared() }
    }

    /// The next `times` calls of `step` fail.
    pub(crate) fn fail(&self, step: &'static str, fault: StepFault, times: usize) {
        self.faults.lock().unwrap().insert(step, (fault, times));
    }

    /// Every step takes this long, so that none is ready at its first poll.
    pub(crate) fn slow(&self, delay: Duration) {
        *self.delay.lock().unwrap() = delay;
    }

    /// Claims of this key never get a reply.
    pub(crate) fn cut_off(&self, key: KeyHash) {
        *self.unreachable.lock().unwrap() = Some(key);
    }

    async fn wait(&self) {
        let delay = *self.delay.lock().unwrap();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    fn reachable<T>(&self, key: &KeyHash, reply: Result<T>) -> Result<T> {
        if *self.unreachable.lock().unwrap() == Some(*key) { Err(down()) } else { reply }
    }

    pub(crate) fn heal(&self) {
        self.faults.lock().unwrap().clear();
    }

    pub(crate) fn calls(&self, step: &'static str) -> usize {
        self.calls.lock().unwrap().get(step).copied().unwrap_or(0)
    }

    fn fault(&self, step: &'static str) -> Option<StepFault> {
        *self.calls.lock().unwrap().entry(step).or_default() += 1;
        let mut faults = self.faults.lock().unwrap();
        let (fault, times) = faults.get_mut(step)?;
        *times = times.checked_sub(1)?;
        Some(*fault)
    }
}

fn down() -> Error {
    Error::new(ErrorKind::Unavailable, "the store is down in this test")
}

trait FailedReply {
    fn failed(error: impl Fn() -> Error, requests: usize) -> Self;
}

impl<T> FailedReply for Result<T> {
    fn failed(error: impl Fn() -> Error, _: usize) -> Self {
        Err(error())
    }
}

impl<T> FailedReply for Vec<Result<T>> {
    fn failed(error: impl Fn() -> Error, requests: usize) -> Self {
        (0..requests).map(|_| Err(error())).collect()
    }
}

trait RequestCount {
    fn count(&self) -> usize;
}

impl<T> RequestCount for &[T] {
    fn count(&self) -> usize {
        self.len()
    }
}

macro_rules! one {
    ($($request:ty),*) => { $(impl RequestCount for $request { fn count(&self) -> usize { 1 } })* };
}
one!(&RenewRequest, &CompleteRequest, &ReleaseRequest, &AbandonRequest);
one!(&ResolveRequest, &KeyHash, &ListQuery, usize, Duration);

macro_rules! faulty {
    ($($step:ident($request:ty) -> $reply:ty;)*) => {
        #[async_trait]
        impl Store for FaultyStore {
            fn info(&self) -> StoreInfo {
                StoreInfo { shared: self.is_shared, ..self.inner.info() }
            }
            async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
                self.wait().await;
                let answer = match self.fault("claim") {
                    None => self.inner.claim(request).await,
                    Some(StepFault::Down) => Err(down()),
                    Some(StepFault::ReplyLost) => self.inner.claim(request).await.and(Err(down())),
                    Some(StepFault::Hangs) => std::future::pending().await,
                    Some(StepFault::Panics) => panic!("the store panics in this test"),
                };
                self.reachable(&request.key, answer)
            }
            async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
                self.wait().await;
                let answers = match self.fault("claim_many") {
                    None => self.inner.claim_many(requests).await,
                    Some(StepFault::Down) => FailedReply::failed(down, requests.len()),
                    Some(StepFault::ReplyLost) => {
                        let _lost = self.inner.claim_many(requests).await;
                        FailedReply::failed(down, requests.len())
                    }
                    Some(StepFault::Hangs) => std::future::pending().await,
                    Some(StepFault::Panics) => panic!("the store panics in this test"),
                };
                let each = requests.iter().zip(answers);
                each.map(|(request, answer)| self.reachable(&request.key, answer)).collect()
            }
            $(async fn $step(&self, request: $request) -> $reply {
                let requests = request.count();
                self.wait().await;
                match self.fault(stringify!($step)) {
                    Some(StepFault::Hangs) => std::future::pending().await,
                    Some(StepFault::Panics) => panic!("the store panics in this test"),
                    None => self.inner.$step(request).await,
                    Some(StepFault::Down) => FailedReply::failed(down, requests),
                    Some(StepFault::ReplyLost) => {
                        let _lost = self.inner.$step(request).await;
                        FailedReply::failed(down, requests)
                    }
                }
            })*
            async fn stats(&self) -> Result<Stats> {
                self.inner.stats().await
            }
        }
    };
}

faulty! {
    renew(&RenewRequest) -> Result<Renewal>;
    complete(&CompleteRequest) -> Result<Completion>;
    release(&ReleaseRequest) -> Result<Release>;
    abandon(&AbandonRequest) -> Result<Abandonment>;
    renew_many(&[RenewRequest]) -> Vec<Result<Renewal>>;
    complete_many(&[CompleteRequest]) -> Vec<Result<Completion>>;
    release_many(&[ReleaseRequest]) -> Vec<Result<Release>>;
    resolve(&ResolveRequest) -> Result<Resolution>;
    erase(&KeyHash) -> Result<Erasure>;
    purge(usize) -> Result<Purged>;
    forget(&KeyHash) -> Result<Forgetting>;
    lead(Duration) -> Result<bool>;
    get(&KeyHash) -> Result<Option<Sighting>>;
    list(&ListQuery) -> Result<Vec<Record>>;
}
