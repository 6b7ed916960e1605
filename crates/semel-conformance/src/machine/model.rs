//! The protocol's own functions over a handful of records.

use std::collections::BTreeMap;

use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, ListQuery, Record, Release, ReleaseRequest, RenewRequest, Renewal,
    Resolution, ResolveRequest, Timestamp,
    steps::{self, Change, Step},
};

/// One step, as a store is asked for it.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Claim(ClaimRequest),
    Renew(RenewRequest),
    Complete(CompleteRequest),
    Release(ReleaseRequest),
    Abandon(AbandonRequest),
    Resolve(ResolveRequest),
    Erase(KeyHash),
    Forget(KeyHash),
}

/// What a step is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
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
pub(super) struct Moment {
    pub(super) now: Timestamp,
    pub(super) purged: bool,
}

/// The records a store should have.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    records: BTreeMap<KeyHash, Record>,
}

impl Call {
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

    /// What the step makes of its key's record at that moment, and what it answers.
    pub(super) fn step(&self, call: &Call, moment: Moment) -> (Option<Record>, Answer) {
        let mut record = self.record(call.key()).cloned();
        if moment.purged {
            record = record.and_then(|record| purged(record, moment.now));
        }
        let Step { change, answer } = decide(call, record.as_ref(), moment.now);
        (changed(record, change), answer)
    }

    /// T12 on every record.
    pub(super) fn purge(&mut self, now: Timestamp) {
        let records = std::mem::take(&mut self.records);
        let rest =
            records.into_iter().filter_map(|(key, record)| Some((key, purged(record, now)?)));
        self.records = rest.collect();
    }

    /// The page a query is answered with.
    pub(super) fn list(&self, query: &ListQuery, moment: Moment) -> Vec<Record> {
        let mut view = self.clone();
        if moment.purged {
            view.purge(moment.now);
        }
        let wanted = |record: &Record| !record.is_expired(moment.now) && query.matches(record);
        view.records.into_values().filter(wanted).take(query.limit).collect()
    }
}

/// What purge leaves of a record.
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

fn decide(call: &Call, record: Option<&Record>, now: Timestamp) -> Step<Answer> {
    match call {
        Call::Claim(request) => map(steps::claim(record, request, now), Answer::Claim),
        Call::Renew(request) => map(steps::renew(record, request, now), Answer::Renewal),
        Call::Complete(request) => map(steps::complete(record, request, now), Answer::Completion),
        Call::Release(request) => map(steps::release(record, request, now), Answer::Release),
        Call::Abandon(request) => map(steps::abandon(record, request, now), Answer::Abandonment),
        Call::Resolve(request) => map(steps::resolve(record, request, now), Answer::Resolution),
        Call::Erase(_) => map(steps::erase(record, now), Answer::Erasure),
        Call::Forget(_) => map(steps::forget(record, now), Answer::Forgetting),
    }
}

fn map<A>(step: Step<A>, wrap: impl FnOnce(A) -> Answer) -> Step<Answer> {
    Step { change: step.change, answer: wrap(step.answer) }
}
