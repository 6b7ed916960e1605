//! The layer itself: seals on the way in, opens on the way out. It decides nothing.

#![deny(clippy::missing_trait_methods)]

use std::{borrow::Cow, sync::Arc, time::Duration};

use async_trait::async_trait;
use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Current,
    Decision, Erasure, Error, Forgetting, KeyHash, Labels, ListQuery, Outcome, Purged, Record,
    Release, ReleaseRequest, RenewRequest, Renewal, Replay, Resolution, ResolveRequest, Result,
    Sighting, Stats, Store, StoreInfo,
};

use crate::{error::not_sealed, labels, outcome, ring::KeyRing, seal::What};

/// A store that sees outcomes and labels sealed only.
///
/// What does not open (the key is missing or another one, the bytes were changed or are another
/// record's) is [`ErrorKind::Corrupt`](semel_core::ErrorKind::Corrupt) for whoever asked: nothing runs,
/// whatever the policy says about a store that is down, and the record stays as it is.
///
/// A cache goes around it: [`Cached`](semel_core::Cached) then holds what is open, in memory only.
#[derive(Clone, Debug)]
pub struct Sealed<S> {
    store: S,
    ring: KeyRing,
    unsealed: Unsealed,
}

/// What becomes of records that are not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsealed {
    Refuse,
    Accept,
}

/// Records looked through at once when only those of a namespace are wanted.
const PAGE: usize = 500;
/// Of so many that are asked for in any case, one opens unless the keys are wrong.
const FEW: usize = 64;

/// Records that do not open.
#[derive(Default)]
struct Shut {
    first: Option<Error>,
    count: usize,
}

impl Shut {
    fn add(&mut self, error: Error) {
        self.first.get_or_insert(error);
        self.count += 1;
    }
}

impl<S: Store> Sealed<S> {
    /// Seals what goes into `store` with the keys of `ring`.
    pub const fn new(store: S, ring: KeyRing) -> Self {
        Self { store, ring, unsealed: Unsealed::Refuse }
    }

    /// Reads records that are not sealed, too: those from before there was this layer. Off by default,
    /// because whoever can write to the store could then put any outcome there.
    #[must_use]
    pub fn accept_unsealed(self, accept: bool) -> Self {
        let unsealed = if accept { Unsealed::Accept } else { Unsealed::Refuse };
        Self { unsealed, ..self }
    }

    /// The keys it seals and opens with.
    #[must_use]
    pub const fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Opens a record as the store has it.
    ///
    /// # Errors
    ///
    /// When something in it does not open.
    pub fn open(&self, mut record: Record) -> Result<Record> {
        let key = record.key;
        record.labels = record.labels.map(|it| self.open_labels(&key, it)).transpose()?;
        record.outcome = record.outcome.map(|it| self.open_outcome(&key, it)).transpose()?;
        Ok(record)
    }

    /// One that does not open must not hide the others.
    fn open_each(&self, records: Vec<Record>, shut: &mut Shut) -> Vec<Record> {
        let opened = records.into_iter().map(|record| self.open(record));
        opened.filter_map(|opened| opened.map_err(|error| shut.add(error)).ok()).collect()
    }

    fn seal_outcome(&self, key: &KeyHash, outcome: &Outcome) -> Arc<Outcome> {
        outcome::seal(self.ring.keys().first(), key, outcome)
    }

    fn open_outcome(&self, key: &KeyHash, outcome: Arc<Outcome>) -> Result<Arc<Outcome>> {
        match (outcome.is_sealed(), self.unsealed) {
            (true, _) => outcome::open(&self.ring.keys(), key, &outcome),
            (false, Unsealed::Accept) => Ok(outcome),
            (false, Unsealed::Refuse) => Err(not_sealed(key, What::Outcome)),
        }
    }

    fn open_labels(&self, key: &KeyHash, labels: Labels) -> Result<Labels> {
        match (labels::are_sealed(&labels), self.unsealed) {
            (true, _) => labels::open(&self.ring.keys(), key, &labels),
            (false, Unsealed::Accept) => Ok(labels),
            (false, Unsealed::Refuse) => Err(not_sealed(key, What::Labels)),
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
        let answers = self.store.claim_many(&sealed).await;
        let open = |(request, answer): (&ClaimRequest, Result<Claim>)| {
            answer.and_then(|claim| self.claimed(&request.key, claim))
        };
        requests.iter().zip(answers).map(open).collect()
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        let sealed = self.complete_request(request);
        self.completed(&request.owner.key, self.store.complete(&sealed).await?)
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        let sealed: Vec<_> = requests.iter().map(|it| self.complete_request(it)).collect();
        let answers = self.store.complete_many(&sealed).await;
        let open = |(request, answer): (&CompleteRequest, Result<Completion>)| {
            answer.and_then(|completion| self.completed(&request.owner.key, completion))
        };
        requests.iter().zip(answers).map(open).collect()
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
        let answers = self.store.release_many(requests).await;
        let open = |(request, answer): (&ReleaseRequest, Result<Release>)| {
            answer.and_then(|release| self.released(&request.owner.key, release))
        };
        requests.iter().zip(answers).map(open).collect()
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        Ok(match self.store.abandon(request).await? {
            Abandonment::Superseded(current) => {
                Abandonment::Superseded(self.current(&request.owner.key, current)?)
            }
            answer @ (Abandonment::Lapsing | Abandonment::Unknown | Abandonment::Missing) => answer,
        })
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        Ok(match self.store.resolve(&self.resolve_request(request)).await? {
            Resolution::Refused(current) => {
                Resolution::Refused(self.current(&request.key, current)?)
            }
            answer @ (Resolution::Done | Resolution::Missing) => answer,
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

    /// The store cannot tell one namespace from another: it is told apart here, page by page.
    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        let page = query.limit.max(if query.namespace.is_some() { PAGE } else { FEW });
        let mut asked = ListQuery { namespace: None, limit: page, ..query.clone() };
        let (mut found, mut shut, mut opens) = (Vec::new(), Shut::default(), false);
        while found.len() < query.limit {
            let records = self.store.list(&asked).await?;
            let is_last = records.len() < page;
            asked.after = records.last().map(|record| record.key).or(asked.after);
            let opened = self.open_each(records, &mut shut);
            opens |= !opened.is_empty();
            // With the wrong keys nothing opens, however long one looks.
            if let (false, Some(error)) = (opens, &shut.first) {
                return Err(error.clone());
            }
            found.extend(opened.into_iter().filter(|record| query.matches(record)));
            if is_last {
                break;
            }
        }
        found.truncate(query.limit);
        if let Shut { first: Some(error), count } = shut {
            tracing::error!(%error, count, "sealed: records that do not open are left out of a list");
        }
        Ok(found)
    }

    async fn stats(&self) -> Result<Stats> {
        self.store.stats().await
    }
}
