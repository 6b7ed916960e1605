//! The model: the protocol's own pure functions over a few records.

use std::collections::BTreeMap;

use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, ListQuery, Record, Release, ReleaseRequest, RenewRequest, Renewal,
    Resolution, ResolveRequest, Timestamp,
    steps::{self, Change, Step},
};

/// The request for one step.
#[derive(Clone, Debug)]
pub(super) enum StepRequest {
    Claim(ClaimRequest),
    Renew(RenewRequest),
    Complete(CompleteRequest),
    Release(ReleaseRequest),
    Abandon(AbandonRequest),
    Resolve(ResolveRequest),
    Erase(KeyHash),
    Forget(KeyHash),
}

/// The reply to one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepReply {
    Claim(Claim),
    Renewal(Renewal),
    Completion(Completion),
    Release(Release),
    Abandonment(Abandonment),
    Resolution(Resolution),
    Erasure(Erasure),
    Forgetting(Forgetting),
}

/// When a step may have happened, and whether a purge may have come first.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepTime {
    pub(super) now: Timestamp,
    pub(super) purged: bool,
}

/// The records that the store should have.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    records: BTreeMap<KeyHash, Record>,
}

impl StepRequest {
    pub(super) const fn key(&self) -> &KeyHash {
        match self {
            Self::Claim(request) => &request.key,
            Self::Renew(request) => &request.owner.key,
            Self::Complete(request) => &request.owner.key,
            Self::Release(request) => &request.owner.key,
            Self::Abandon(request) => &request.owner.key,
            Self::Resolve(request) => &request.key,
            Self::Erase(key) | Self::Forget(key) => key,
        }
    }
}

impl Model {
    /// The record of a key, expired or not.
    pub(super) fn record(&self, key: &KeyHash) -> Option<&Record> {
        self.records.get(key)
    }

    pub(super) fn put(&mut self, key: KeyHash, record: Option<Record>) {
        match record {
            Some(record) => self.records.insert(key, record),
            None => self.records.remove(&key),
        };
    }

    /// The record of the key after the step at that time, and the reply.
    pub(super) fn step(
        &self,
        request: &StepRequest,
        moment: StepTime,
    ) -> (Option<Record>, StepReply) {
        let mut record = self.record(request.key()).cloned();
        if moment.purged {
            record = record.and_then(|record| purged(record, moment.now));
        }
        let Step { change, answer: reply } = decide(request, record.as_ref(), moment.now);
        (changed(record, change), reply)
    }

    /// T12 on every record.
    pub(super) fn purge(&mut self, now: Timestamp) {
        let records = std::mem::take(&mut self.records);
        let rest =
            records.into_iter().filter_map(|(key, record)| Some((key, purged(record, now)?)));
        self.records = rest.collect();
    }

    /// The page for a query.
    pub(super) fn list(&self, query: &ListQuery, moment: StepTime) -> Vec<Record> {
        let mut view = self.clone();
        if moment.purged {
            view.purge(moment.now);
        }
        let wanted = |record: &Record| !record.is_expired(moment.now) && query.matches(record);
        view.records.into_values().filter(wanted).take(query.limit).collect()
    }
}

/// The record after a purge.
pub(super) fn purged(record: Record, now: Timestamp) -> Option<Record> {
    let change = steps::purge(&record, now);
    changed(Some(record), change)
}

fn changed(record: Option<Record>, change: Change) -> Option<Record> {
    match change {
        Change::Keep => record,
        Change::Put(record) => Some(record),
        Change::Delete => None,
    }
}

fn decide(request: &StepRequest, record: Option<&Record>, now: Timestamp) -> Step<StepReply> {
    match request {
        StepRequest::Claim(request) => map(steps::claim(record, request, now), StepReply::Claim),
        StepRequest::Renew(request) => map(steps::renew(record, request, now), StepReply::Renewal),
        StepRequest::Complete(request) => {
            map(steps::complete(record, request, now), StepReply::Completion)
        }
        StepRequest::Release(request) => {
            map(steps::release(record, request, now), StepReply::Release)
        }
        StepRequest::Abandon(request) => {
            map(steps::abandon(record, request, now), StepReply::Abandonment)
        }
        StepRequest::Resolve(request) => {
            map(steps::resolve(record, request, now), StepReply::Resolution)
        }
        StepRequest::Erase(_) => map(steps::erase(record, now), StepReply::Erasure),
        StepRequest::Forget(_) => map(steps::forget(record, now), StepReply::Forgetting),
    }
}

fn map<A>(step: Step<A>, wrap: impl FnOnce(A) -> StepReply) -> Step<StepReply> {
    Step { change: step.change, answer: wrap(step.answer) }
}
