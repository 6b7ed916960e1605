//! A store over a map that runs the protocol's steps with one planted bug.

use std::{collections::BTreeMap, fmt, thread, time::Duration};

use parking_lot::Mutex;
use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, Clock, CompleteRequest, Completion,
    Durability, Erasure, Forgetting, KeyHash, ListQuery, ManualClock, Purged, Record, Release,
    ReleaseRequest, RenewRequest, Renewal, Resolution, ResolveRequest, Result, Sighting, State,
    Stats, Store, StoreInfo, Timestamp,
};

use crate::{PlantedBug, StepReply, StepRequest, StoreBug};

/// Long enough for another thread to run in between.
const A_MOMENT: Duration = Duration::from_micros(50);

type Records = BTreeMap<KeyHash, Record>;

/// A store with one planted bug.
pub struct BuggyStore {
    bug: &'static PlantedBug,
    records: Mutex<Records>,
    clock: ManualClock,
}

impl BuggyStore {
    /// An empty store with this bug.
    #[must_use]
    pub fn new(bug: &'static PlantedBug, clock: ManualClock) -> Self {
        Self { bug, records: Mutex::default(), clock }
    }

    fn is(&self, store_bug: StoreBug) -> bool {
        self.bug.store_bug == store_bug
    }

    fn now(&self) -> Timestamp {
        if self.is(StoreBug::TimeStandsStill) { ManualClock::START } else { self.clock.now() }
    }

    fn step(&self, call: StepRequest, key: KeyHash) -> StepReply {
        let mut records = self.records.lock();
        let found = records.get(&key).cloned();
        if self.is(StoreBug::StepsAreNotAtomic) {
            drop(records);
            thread::sleep(A_MOMENT);
            records = self.records.lock();
        }
        let (written, answer) = self.bug.step(found, call, self.now());
        match written {
            Some(record) => records.insert(key, record),
            None => records.remove(&key),
        };
        answer
    }

    fn matches(&self, query: &ListQuery, record: &Record) -> bool {
        let labels = record.labels.as_ref();
        let prefix = query.namespace.as_deref().is_some_and(|wanted| {
            labels.is_some_and(|labels| labels.namespace().starts_with(wanted))
        });
        query.matches(record) || (self.is(StoreBug::ListMatchesPrefixes) && prefix)
    }
}

impl fmt::Debug for BuggyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.bug.name)
    }
}

/// Runs one step. The reply has the kind of the request.
macro_rules! step {
    ($self:ident, $key:expr, $call:expr, $kind:ident) => {
        match $self.step($call, $key) {
            StepReply::$kind(answer) => Ok(answer),
            other => unreachable!("a bug does not change the kind of an answer: {other:?}"),
        }
    };
}

/// Runs the requests of a batch one after the other, unless the bug changes that.
macro_rules! batch {
    ($self:ident, $requests:ident, $key:expr, $one:ident) => {{
        let mut order: Vec<usize> = (0..$requests.len()).collect();
        if $self.is(StoreBug::BatchAnswersInKeyOrder) {
            order.sort_by_key(|n| $key(&$requests[*n]));
        }
        let mut answers = Vec::new();
        let before = $self.records.lock().clone();
        for n in order {
            if $self.is(StoreBug::BatchMissesSameKey) {
                let key = $key(&$requests[n]);
                if let Some(record) = before.get(&key) {
                    $self.records.lock().insert(key, record.clone());
                } else {
                    $self.records.lock().remove(&key);
                }
            }
            answers.push($self.$one(&$requests[n]).await);
        }
        answers
    }};
}

#[async_trait::async_trait]
impl Store for BuggyStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            name: "buggy",
            durability: Durability::Process,
            max_outcome_bytes: 1 << 21,
            hash_secret: None,
            change_feed: None,
            shared: false,
            identity: None,
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        step!(self, request.key, StepRequest::Claim(request.clone()), Claim)
    }
    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        step!(self, request.owner.key, StepRequest::Renew(*request), Renew)
    }
    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        step!(self, request.owner.key, StepRequest::Complete(request.clone()), Complete)
    }
    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        step!(self, request.owner.key, StepRequest::Release(*request), Release)
    }
    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        step!(self, request.owner.key, StepRequest::Abandon(*request), Abandon)
    }
    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        step!(self, request.key, StepRequest::Resolve(request.clone()), Resolve)
    }
    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        step!(self, *key, StepRequest::Erase, Erase)
    }
    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        step!(self, *key, StepRequest::Forget, Forget)
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        batch!(self, requests, |request: &ClaimRequest| request.key, claim)
    }
    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        batch!(self, requests, |request: &RenewRequest| request.owner.key, renew)
    }
    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        batch!(self, requests, |request: &CompleteRequest| request.owner.key, complete)
    }
    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        batch!(self, requests, |request: &ReleaseRequest| request.owner.key, release)
    }

    async fn purge(&self, limit: usize) -> Result<Purged> {
        let mut purged = Purged::default();
        let limit = if self.is(StoreBug::PurgeIgnoresItsLimit) { usize::MAX } else { limit };
        let mut records = self.records.lock();
        let now = self.now();
        for (key, found) in records.clone() {
            if purged.count() == limit {
                break;
            }
            match self.bug.step(Some(found.clone()), StepRequest::Purge, now).0 {
                Some(record) if record == found => {}
                Some(record) => {
                    records.insert(key, record);
                    purged.held += 1;
                }
                None => {
                    records.remove(&key);
                    purged.deleted += 1;
                }
            }
        }
        Ok(purged)
    }

    async fn lead(&self, _: Duration) -> Result<bool> {
        Ok(true)
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        let at = self.clock.now();
        let record = self.records.lock().get(key).cloned();
        let shown = record.filter(|r| self.is(StoreBug::GetShowsExpired) || !r.is_expired(at));
        Ok(shown.map(|record| Sighting { record, at }))
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        let now = self.clock.now();
        let repeats = self.is(StoreBug::ListRepeatsTheLast);
        let wanted = |record: &&Record| {
            let after = query
                .after
                .is_none_or(|after| record.key > after || (repeats && record.key == after));
            let expired = record.is_expired(now) && !self.is(StoreBug::ListShowsExpired);
            after && !expired && self.matches(query, record)
        };
        let records = self.records.lock();
        let mut page: Vec<Record> = records.values().filter(wanted).cloned().collect();
        if self.is(StoreBug::ListIgnoresOrder) {
            page.reverse();
        }
        page.truncate(query.limit);
        Ok(page)
    }

    async fn stats(&self) -> Result<Stats> {
        let records = self.records.lock();
        let count = |state| records.values().filter(|record| record.state == state).count() as u64;
        let (unknown, dead) = (count(State::Unknown), count(State::Dead));
        Ok(Stats { records: records.len() as u64, unknown, dead })
    }
}
