//! `impl Store` for the arbiter: the front answers replays, the authority everything else.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{Arbiter, Replica, ReplicaCache, replica::ReplicaSource};
use crate::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, ListQuery, Purged, Record, Release, ReleaseRequest, RenewRequest, Renewal,
    Resolution, ResolveRequest, Result, Sighting, Stats, Store, StoreInfo,
    background::run_to_completion,
};

impl<F: ReplicaCache, A: Store> Arbiter<F, A> {
    /// Remembers a grant, and makes a replica of a replay.
    fn claim_replied(&self, request: &ClaimRequest, reply: &Result<Claim>) -> Option<Replica> {
        let claim = reply.as_ref().ok()?;
        self.0.granted.remember(request, claim);
        match claim {
            Claim::Replay(replay) => Some(ReplicaSource::replayed(request, replay)),
            Claim::Granted(_)
            | Claim::Busy { .. }
            | Claim::Mismatch
            | Claim::Unknown
            | Claim::Dead
            | Claim::Gone
            | Claim::Released => None,
        }
    }

    /// Makes a replica of a recorded outcome.
    fn completion_replied(
        &self,
        request: &CompleteRequest,
        source: Option<ReplicaSource>,
        reply: &Result<Completion>,
    ) -> Option<Replica> {
        let source = source.filter(|_| self.0.granted.end_completion(&request.owner))?;
        match reply {
            Ok(Completion::Recorded) => Some(source.completed()),
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
        let called_at = Instant::now();
        let reply = self.0.authority.claim(request).await;
        if let Some(replica) = self.claim_replied(request, &reply) {
            self.0.front.write(vec![replica], called_at).await;
        }
        reply
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let replays = self.0.replays(requests).await;
        let missed = requests.iter().zip(&replays).filter(|(_, replay)| replay.is_none());
        let missed: Vec<ClaimRequest> = missed.map(|(request, _)| request.clone()).collect();
        if missed.is_empty() {
            return replays.into_iter().flatten().map(Ok).collect();
        }
        let called_at = Instant::now();
        let replies = self.0.authority.claim_many(&missed).await;
        let replicas = missed.iter().zip(&replies);
        let replicas = replicas.filter_map(|(request, reply)| self.claim_replied(request, reply));
        self.0.front.write(replicas.collect(), called_at).await;
        let mut replies = replies.into_iter();
        replays.into_iter().filter_map(|replay| replay.map(Ok).or_else(|| replies.next())).collect()
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        let (source, called_at) = (self.0.granted.begin_completion(request), Instant::now());
        let reply = self.0.authority.complete(request).await;
        if let Some(replica) = self.completion_replied(request, source, &reply) {
            self.0.front.write(vec![replica], called_at).await;
        }
        reply
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        let sources: Vec<_> =
            requests.iter().map(|request| self.0.granted.begin_completion(request)).collect();
        let called_at = Instant::now();
        let replies = self.0.authority.complete_many(requests).await;
        let calls = requests.iter().zip(sources).zip(&replies);
        let replicas = calls.filter_map(|((request, source), reply)| {
            self.completion_replied(request, source, reply)
        });
        self.0.front.write(replicas.collect(), called_at).await;
        replies
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        self.0.granted.forget(&request.owner);
        self.0.authority.release(request).await
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        requests.iter().for_each(|request| self.0.granted.forget(&request.owner));
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
