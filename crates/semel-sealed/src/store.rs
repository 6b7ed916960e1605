//! The sealing layer: seals requests to a store and opens its replies. It makes no decisions of its own.

#![deny(clippy::missing_trait_methods)]

use std::{borrow::Cow, sync::Arc, time::Duration};

use async_trait::async_trait;
use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Current,
    Decision, Erasure, Error, Forgetting, KeyHash, Labels, ListQuery, Outcome, Purged, Record,
    Release, ReleaseRequest, RenewRequest, Renewal, Replay, Resolution, ResolveRequest, Result,
    Sighting, Stats, Store, StoreInfo,
};

use crate::{error::not_sealed, key_ring::KeyRing, labels, outcome, seal::SealedPart};

/// A layer that seals outcomes and labels before its store gets them.
///
/// If a record does not open (the key is missing or a different one, the bytes were changed or belong to another
/// record), the caller gets [`ErrorKind::Corrupt`](semel_core::ErrorKind::Corrupt): nothing runs, even if the policy
/// allows to run while a store is down, and the record stays as it is.
///
/// Put a cache around this layer: [`Cached`](semel_core::Cached) then holds opened outcomes, in memory only.
#[derive(Clone, Debug)]
pub struct Sealed<S> {
    store: S,
    ring: KeyRing,
    unsealed: OnUnsealed,
}

/// What to do with records that are not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnUnsealed {
    Refuse,
    Accept,
}

/// The page size for a list that is filtered by namespace.
const NAMESPACE_PAGE: usize = 500;
/// The smallest page: at least one of this many records opens, unless the keys are wrong.
const MIN_PAGE: usize = 64;

/// The records that did not open: the first error, and their number.
#[derive(Default)]
struct UnopenedRecords {
    first: Option<Error>,
    count: usize,
}

impl UnopenedRecords {
    fn add(&mut self, error: Error) {
        self.first.get_or_insert(error);
        self.count += 1;
    }
}

impl<S: Store> Sealed<S> {
    /// Seals data for `store` with the keys of `ring`.
    pub const fn new(store: S, ring: KeyRing) -> Self {
        Self { store, ring, unsealed: OnUnsealed::Refuse }
    }

    /// Also reads records that are not sealed: those from before this layer was used. Off by default, because an
    /// attacker that can write to the store could then store any outcome.
    #[must_use]
    pub fn accept_unsealed(self, accept: bool) -> Self {
        let unsealed = if accept { OnUnsealed::Accept } else { OnUnsealed::Refuse };
        Self { unsealed, ..self }
    }

    /// The key ring that it seals and opens with.
    #[must_use]
    pub const fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Opens a record as the store has it.
    ///
    /// # Errors
    ///
    /// If a part of it does not open.
    pub fn open(&self, mut record: Record) -> Result<Record> {
        let key = record.key;
        record.labels = record.labels.map(|it| self.open_labels(&key, it)).transpose()?;
        record.outcome = record.outcome.map(|it| self.open_outcome(&key, it)).transpose()?;
        Ok(record)
    }

    /// Opens each record. A record that does not open must not hide the others.
    fn open_each(&self, records: Vec<Record>, unopened: &mut UnopenedRecords) -> Vec<Record> {
        let opened = records.into_iter().map(|record| self.open(record));
        opened.filter_map(|opened| opened.map_err(|error| unopened.add(error)).ok()).collect()
    }

    fn seal_outcome(&self, key: &KeyHash, outcome: &Outcome) -> Arc<Outcome> {
        outcome::seal(self.ring.keys().first(), key, outcome)
    }

    fn open_outcome(&self, key: &KeyHash, outcome: Arc<Outcome>) -> Result<Arc<Outcome>> {
        match (outcome.is_sealed(), self.unsealed) {
            (true, _) => outcome::open(&self.ring.keys(), key, &outcome),
            (false, OnUnsealed::Accept) => Ok(outcome),
            (false, OnUnsealed::Refuse) => Err(not_sealed(key, SealedPart::Outcome)),
        }
    }

    fn open_labels(&self, key: &KeyHash, labels: Labels) -> Result<Labels> {
        match (labels::are_sealed(&labels), self.unsealed) {
            (true, _) => labels::open(&self.ring.keys(), key, &labels),
            (false, OnUnsealed::Accept) => Ok(labels),
            (false, OnUnsealed::Refuse) => Err(not_sealed(key, SealedPart::Labels)),
        }
    }

    fn claim_request<'a>(&self, request: &'a ClaimRequest) -> Cow<'a, ClaimRequest> {
        let Some(labels) = &request.labels else { return Cow::Borrowed(request) };
        let labels = labels::seal(self.ring.keys().first(), &request.key, labels);
        Cow::Owned(ClaimRequest { labels: Some(labels), ..request.clone() })
    }

    fn complete_request(&self, request: &CompleteRequest) -> CompleteRequest {
        let owner = request.owner;
        CompleteRequest { owner, outcome: self.seal_outcome(&owner.key, &request.outcome) }
    }

    fn resolve_request(&self, request: &ResolveRequest) -> ResolveRequest {
        let decision = match &request.decision {
            Decision::Complete(outcome) => {
                Decision::Complete(self.seal_outcome(&request.key, outcome))
            }
            Decision::Reopen(effect) => Decision::Reopen(*effect),
        };
        ResolveRequest { decision, ..request.clone() }
    }

    fn replay(&self, key: &KeyHash, replay: Replay) -> Result<Replay> {
        Ok(Replay { outcome: self.open_outcome(key, replay.outcome)?, ..replay })
    }

    fn current(&self, key: &KeyHash, current: Current) -> Result<Current> {
        Ok(match current {
            Current::Completed(replay) => Current::Completed(self.replay(key, replay)?),
            current @ (Current::Open
            | Current::InProgress { .. }
            | Current::Unknown
            | Current::Dead
            | Current::Erased) => current,
        })
    }

    fn claimed(&self, key: &KeyHash, claim: Claim) -> Result<Claim> {
        Ok(match claim {
            Claim::Replay(replay) => Claim::Replay(self.replay(key, replay)?),
            claim @ (Claim::Granted(_)
            | Claim::Busy { .. }
            | Claim::Mismatch
            | Claim::Unknown
            | Claim::Dead
            | Claim::Gone
            | Claim::Released) => claim,
        })
    }

    fn completed(&self, key: &KeyHash, completion: Completion) -> Result<Completion> {
        Ok(match completion {
            Completion::Superseded(current) => Completion::Superseded(self.current(key, current)?),
            completion @ (Completion::Recorded | Completion::Missing) => completion,
        })
    }

    fn released(&self, key: &KeyHash, release: Release) -> Result<Release> {
        Ok(match release {
            Release::Superseded(current) => Release::Superseded(self.current(key, current)?),
            release @ (Release::Open | Release::Unknown | Release::Missing) => release,
        })
    }
}

#[async_trait]
impl<S: Store> Store for Sealed<S> {
    fn info(&self) -> StoreInfo {
        let info = self.store.info();
        let max_outcome_bytes = info.max_outcome_bytes.saturating_sub(outcome::OVERHEAD);
        StoreInfo { max_outcome_bytes, ..info }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let sealed = self.claim_request(request);
        self.claimed(&request.key, self.store.claim(&sealed).await?)
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let sealed: Vec<_> =
            requests.iter().map(|it| self.claim_request(it).into_owned()).collect();
        let replies = self.store.claim_many(&sealed).await;
        let open = |(request, reply): (&ClaimRequest, Result<Claim>)| {
            reply.and_then(|claim| self.claimed(&request.key, claim))
        };
        requests.iter().zip(replies).map(open).collect()
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        let sealed = self.complete_request(request);
        self.completed(&request.owner.key, self.store.complete(&sealed).await?)
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        let sealed: Vec<_> = requests.iter().map(|it| self.complete_request(it)).collect();
        let replies = self.store.complete_many(&sealed).await;
        let open = |(request, reply): (&CompleteRequest, Result<Completion>)| {
            reply.and_then(|completion| self.completed(&request.owner.key, completion))
        };
        requests.iter().zip(replies).map(open).collect()
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        self.store.renew(request).await
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        self.store.renew_many(requests).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        self.released(&request.owner.key, self.store.release(request).await?)
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        let replies = self.store.release_many(requests).await;
        let open = |(request, reply): (&ReleaseRequest, Result<Release>)| {
            reply.and_then(|release| self.released(&request.owner.key, release))
        };
        requests.iter().zip(replies).map(open).collect()
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        Ok(match self.store.abandon(request).await? {
            Abandonment::Superseded(current) => {
                Abandonment::Superseded(self.current(&request.owner.key, current)?)
            }
            reply @ (Abandonment::Lapsing | Abandonment::Unknown | Abandonment::Missing) => reply,
        })
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        Ok(match self.store.resolve(&self.resolve_request(request)).await? {
            Resolution::Refused(current) => {
                Resolution::Refused(self.current(&request.key, current)?)
            }
            reply @ (Resolution::Done | Resolution::Missing) => reply,
        })
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        self.store.erase(key).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged> {
        self.store.purge(limit).await
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        self.store.forget(key).await
    }

    async fn lead(&self, term: Duration) -> Result<bool> {
        self.store.lead(term).await
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        let Some(Sighting { record, at }) = self.store.get(key).await? else { return Ok(None) };
        Ok(Some(Sighting { record: self.open(record)?, at }))
    }

    /// The store sees no namespaces, so this layer filters by namespace, page by page.
    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        let page =
            query.limit.max(if query.namespace.is_some() { NAMESPACE_PAGE } else { MIN_PAGE });
        let mut page_query = ListQuery { namespace: None, limit: page, ..query.clone() };
        let (mut found, mut unopened, mut opens) = (Vec::new(), UnopenedRecords::default(), false);
        while found.len() < query.limit {
            let records = self.store.list(&page_query).await?;
            let is_last = records.len() < page;
            page_query.after = records.last().map(|record| record.key).or(page_query.after);
            let opened = self.open_each(records, &mut unopened);
            opens |= !opened.is_empty();
            // With the wrong keys no record would open on any later page either.
            if let (false, Some(error)) = (opens, &unopened.first) {
                return Err(error.clone());
            }
            found.extend(opened.into_iter().filter(|record| query.matches(record)));
            if is_last {
                break;
            }
        }
        found.truncate(query.limit);
        if let UnopenedRecords { first: Some(error), count } = unopened {
            tracing::error!(%error, count, "sealed: records that do not open are left out of a list");
        }
        Ok(found)
    }

    async fn stats(&self) -> Result<Stats> {
        self.store.stats().await
    }
}
