//! `impl Store`: claims where a key is at home, the steps of an owner where it was granted.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;

use super::{FailbackWindow, Failover, Inner, claim_origins::Home};
use crate::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, ListQuery, Owner, Purged, Record, Release, ReleaseRequest, RenewRequest,
    Renewal, Resolution, ResolveRequest, Result, Sighting, Stats, Store, StoreInfo,
    background::run_to_completion, layers::circuit_breaker::is_answer,
};

impl<P: Store, S: Store + FailbackWindow> Inner<P, S> {
    /// A step of an owner where it was granted. Where nobody remembers that, the store that knows the owner
    /// answers, the primary first.
    async fn owned<T>(
        &self,
        owner: &Owner,
        primary: impl Future<Output = Result<T>> + Send,
        secondary: impl Future<Output = Result<T>> + Send,
        is_mine: fn(&T) -> bool,
    ) -> Result<T> {
        match self.homes.of(&owner.nonce) {
            Some(Home::Primary) => return primary.await,
            Some(Home::Secondary { .. }) => return secondary.await,
            None => {}
        }
        let first = primary.await;
        if first.as_ref().is_ok_and(is_mine) {
            return first;
        }
        match secondary.await {
            Ok(second) if is_mine(&second) => Ok(second),
            Err(error) if is_answer(&first) => Err(error),
            Ok(_) | Err(_) => first,
        }
    }

    /// True when the primary granted all of these.
    fn all_on_primary<'a>(&self, mut owners: impl Iterator<Item = &'a Owner>) -> bool {
        owners.all(|owner| self.homes.of(&owner.nonce) == Some(Home::Primary))
    }
}

macro_rules! owned {
    ($self:ident, $step:ident($request:expr), $mine:pat) => {
        $self
            .0
            .owned(
                &$request.owner,
                $self.0.primary.$step($request),
                $self.0.secondary.$step($request),
                |answer| matches!(answer, $mine),
            )
            .await
    };
}

macro_rules! owned_all {
    ($self:ident, $step:ident, $many:ident($requests:expr)) => {{
        if $self.0.all_on_primary($requests.iter().map(|request| &request.owner)) {
            return $self.0.primary.$many($requests).await;
        }
        let mut answers = Vec::with_capacity($requests.len());
        for request in $requests {
            answers.push($self.$step(request).await);
        }
        answers
    }};
}

#[async_trait]
impl<P: Store, S: Store + FailbackWindow> Store for Failover<P, S> {
    fn info(&self) -> StoreInfo {
        let (primary, secondary) = (self.0.primary.info(), self.0.secondary.info());
        StoreInfo {
            name: "failover",
            max_outcome_bytes: primary.max_outcome_bytes.min(secondary.max_outcome_bytes),
            change_feed: Some(self.0.feed.clone()),
            ..primary
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.0.claim(request).await
    }

    /// Together where the primary alone is asked; else one by one, so that twins happen in their order.
    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let mut first = self.0.claim_all_on_primary(requests).await.into_iter();
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(match first.next() {
                Some(answer) if is_answer(&answer) => answer,
                Some(_) | None => self.0.claim(request).await,
            });
        }
        answers
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        self.0.cover(&request.owner).await;
        owned!(self, renew(request), Renewal::Extended)
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        self.0.cover(&request.owner).await;
        owned!(self, complete(request), Completion::Recorded)
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        owned!(self, release(request), Release::Open | Release::Unknown)
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        owned!(self, abandon(request), Abandonment::Lapsing | Abandonment::Unknown)
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        owned_all!(self, renew, renew_many(requests))
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        owned_all!(self, complete, complete_many(requests))
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        owned_all!(self, release, release_many(requests))
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        self.0.resolve(request).await
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
        let first = self.0.secondary.purge(limit).await?;
        let second = self.0.primary.purge(limit.saturating_sub(first.count())).await?;
        Ok(Purged { deleted: first.deleted + second.deleted, held: first.held + second.held })
    }

    /// The secondary's, as long as it answers.
    async fn lead(&self, term: Duration) -> Result<bool> {
        let led = self.0.secondary.lead(term).await;
        if is_answer(&led) { led } else { self.0.primary.lead(term).await }
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        self.0.get(key).await
    }

    /// Of a key that both have, the secondary's record.
    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        let mut records = BTreeMap::new();
        for page in [self.0.primary.list(query).await?, self.0.secondary.list(query).await?] {
            records.extend(page.into_iter().map(|record| (record.key, record)));
        }
        Ok(records.into_values().take(query.limit).collect())
    }

    /// Keys that both have count twice.
    async fn stats(&self) -> Result<Stats> {
        let (one, other) = (self.0.primary.stats().await?, self.0.secondary.stats().await?);
        Ok(Stats {
            records: one.records + other.records,
            unknown: one.unknown + other.unknown,
            dead: one.dead + other.dead,
        })
    }
}
