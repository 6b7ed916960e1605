//! `impl Store`: replays from the front, everything else from the authority.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{Arbiter, Replica, ReplicaCache, replica::Original};
use crate::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, ListQuery, Purged, Record, Release, ReleaseRequest, RenewRequest, Renewal,
    Resolution, ResolveRequest, Result, Sighting, Stats, Store, StoreInfo,
    background::run_to_completion,
};

impl<F: ReplicaCache, A: Store> Arbiter<F, A> {
    /// Remembers what was granted, and says what can be put.
    fn heard(&self, request: &ClaimRequest, answer: &Result<Claim>) -> Option<Replica> {
        let claim = answer.as_ref().ok()?;
        self.0.grants.remember(request, claim);
        match claim {
            Claim::Replay(replay) => Some(Original::replayed(request, replay)),
            Claim::Granted(_)
            | Claim::Busy { .. }
            | Claim::Mismatch
            | Claim::Unknown
            | Claim::Dead
            | Claim::Gone
            | Claim::Released => None,
        }
    }

    /// The copy of what was recorded.
    fn recorded(
        &self,
        request: &CompleteRequest,
        original: Option<Original>,
        answer: &Result<Completion>,
    ) -> Option<Replica> {
        let original = original.filter(|_| self.0.grants.end(&request.owner))?;
        match answer {
            Ok(Completion::Recorded) => Some(original.completed()),
            Ok(Completion::Superseded(_) | Completion::Missing) | Err(_) => None,
        }
    }
}

#[async_trait]
impl<F: ReplicaCache, A: Store> Store for Arbiter<F, A> {
    fn info(&self) -> StoreInfo {
        let change_feed = Some(self.0.feed.clone());
        StoreInfo { name: "arbiter", change_feed, ..self.0.authority.info() }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        if let Some(Some(replay)) = self.0.replays(std::slice::from_ref(request)).await.pop() {
            return Ok(replay);
        }
        let asked = Instant::now();
        let answer = self.0.authority.claim(request).await;
        if let Some(copy) = self.heard(request, &answer) {
            self.0.front.put(vec![copy], asked).await;
        }
        answer
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let replays = self.0.replays(requests).await;
        let missed = requests.iter().zip(&replays).filter(|(_, replay)| replay.is_none());
        let missed: Vec<ClaimRequest> = missed.map(|(request, _)| request.clone()).collect();
        if missed.is_empty() {
            return replays.into_iter().flatten().map(Ok).collect();
        }
        let asked = Instant::now();
        let answers = self.0.authority.claim_many(&missed).await;
        let copies = missed.iter().zip(&answers);
        let copies = copies.filter_map(|(request, answer)| self.heard(request, answer)).collect();
        self.0.front.put(copies, asked).await;
        let mut answers = answers.into_iter();
        replays.into_iter().filter_map(|replay| replay.map(Ok).or_else(|| answers.next())).collect()
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        let (original, asked) = (self.0.grants.begin(request), Instant::now());
        let answer = self.0.authority.complete(request).await;
        if let Some(copy) = self.recorded(request, original, &answer) {
            self.0.front.put(vec![copy], asked).await;
        }
        answer
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        let originals: Vec<_> =
            requests.iter().map(|request| self.0.grants.begin(request)).collect();
        let asked = Instant::now();
        let answers = self.0.authority.complete_many(requests).await;
        let calls = requests.iter().zip(originals).zip(&answers);
        let copies = calls
            .filter_map(|((request, original), answer)| self.recorded(request, original, answer));
        self.0.front.put(copies.collect(), asked).await;
        answers
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        self.0.grants.forget(&request.owner);
        self.0.authority.release(request).await
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        requests.iter().for_each(|request| self.0.grants.forget(&request.owner));
        self.0.authority.release_many(requests).await
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        self.0.authority.abandon(request).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        self.0.authority.renew(request).await
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        self.0.authority.renew_many(requests).await
    }

    /// Changes no completed record, and so no copy.
    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        self.0.authority.resolve(request).await
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        let (inner, key) = (self.0.clone(), *key);
        run_to_completion(&self.0.tasks, Box::pin(async move { inner.erase(&key).await })).await?
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        let (inner, key) = (self.0.clone(), *key);
        run_to_completion(&self.0.tasks, Box::pin(async move { inner.forget(&key).await })).await?
    }

    async fn purge(&self, limit: usize) -> Result<Purged> {
        self.0.authority.purge(limit).await
    }

    async fn lead(&self, term: Duration) -> Result<bool> {
        self.0.authority.lead(term).await
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        self.0.authority.get(key).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        self.0.authority.list(query).await
    }

    async fn stats(&self) -> Result<Stats> {
        self.0.authority.stats().await
    }
}
