//! `impl Store` for the failover: an owner's steps go to the store that granted its claim.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;

use super::{FailbackWindow, Failover, FailoverInner, claim_origins::ClaimOrigin};
use crate::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, ListQuery, Owner, Purged, Record, Release, ReleaseRequest, RenewRequest,
    Renewal, Resolution, ResolveRequest, Result, Sighting, Stats, Store, StoreInfo,
    background::run_to_completion, layers::circuit_breaker::store_replied,
};

impl<P: Store, S: Store + FailbackWindow> FailoverInner<P, S> {
    /// An owner's step, on the store that granted its claim. If this node does not remember which one that was, both
    /// stores are called, the primary first, and the one that has this owner gives the reply.
    async fn owner_step<T>(
        &self,
        owner: &Owner,
        primary: impl Future<Output = Result<T>> + Send,
        secondary: impl Future<Output = Result<T>> + Send,
        has_owner: fn(&T) -> bool,
    ) -> Result<T> {
        match self.origins.origin(&owner.nonce) {
            Some(ClaimOrigin::Primary) => return primary.await,
            Some(ClaimOrigin::Secondary { .. }) => return secondary.await,
            None => {}
        }
        let first = primary.await;
        if first.as_ref().is_ok_and(has_owner) {
            return first;
        }
        match secondary.await {
            Ok(second) if has_owner(&second) => Ok(second),
            Err(error) if store_replied(&first) => Err(error),
            Ok(_) | Err(_) => first,
        }
    }

    /// True when the primary granted all of these.
    fn all_on_primary<'a>(&self, mut owners: impl Iterator<Item = &'a Owner>) -> bool {
        owners.all(|owner| self.origins.origin(&owner.nonce) == Some(ClaimOrigin::Primary))
    }
}

macro_rules! owner_step {
    ($self:ident, $step:ident($request:expr), $has_owner:pat) => {
        $self
            .0
            .owner_step(
                &$request.owner,
                $self.0.primary.$step($request),
                $self.0.secondary.$step($request),
                |reply| matches!(reply, $has_owner),
            )
            .await
    };
}

macro_rules! owner_steps {
    ($self:ident, $step:ident, $many:ident($requests:expr)) => {{
        if $self.0.all_on_primary($requests.iter().map(|request| &request.owner)) {
            return $self.0.primary.$many($requests).await;
        }
        let mut replies = Vec::with_capacity($requests.len());
        for request in $requests {
            replies.push($self.$step(request).await);
        }
        replies
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

    /// In one batch if only the primary is called; else one by one, so that claims of one key happen in their order.
    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let mut first = self.0.claim_all_on_primary(requests).await.into_iter();
        let mut replies = Vec::with_capacity(requests.len());
        for request in requests {
            replies.push(match first.next() {
                Some(reply) if store_replied(&reply) => reply,
                Some(_) | None => self.0.claim(request).await,
            });
        }
        replies
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        self.0.extend_window_for(&request.owner).await;
        owner_step!(self, renew(request), Renewal::Extended)
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        self.0.extend_window_for(&request.owner).await;
        owner_step!(self, complete(request), Completion::Recorded)
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        owner_step!(self, release(request), Release::Open | Release::Unknown)
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        owner_step!(self, abandon(request), Abandonment::Lapsing | Abandonment::Unknown)
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        owner_steps!(self, renew, renew_many(requests))
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        owner_steps!(self, complete, complete_many(requests))
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        owner_steps!(self, release, release_many(requests))
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

    /// The secondary's leader, unless the secondary does not reply.
    async fn lead(&self, term: Duration) -> Result<bool> {
        let led = self.0.secondary.lead(term).await;
        if store_replied(&led) { led } else { self.0.primary.lead(term).await }
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        self.0.get(key).await
    }

    /// If both stores have a key, the secondary's record is listed.
    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        let mut records = BTreeMap::new();
        for page in [self.0.primary.list(query).await?, self.0.secondary.list(query).await?] {
            records.extend(page.into_iter().map(|record| (record.key, record)));
        }
        Ok(records.into_values().take(query.limit).collect())
    }

    /// Keys that both stores have count twice.
    async fn stats(&self) -> Result<Stats> {
        let (one, other) = (self.0.primary.stats().await?, self.0.secondary.stats().await?);
        Ok(Stats {
            records: one.records + other.records,
            unknown: one.unknown + other.unknown,
            dead: one.dead + other.dead,
        })
    }
}
