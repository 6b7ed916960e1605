//! What a worker is asked, and what it says: one kind of call for each step on one key.

use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, Record, Release, ReleaseRequest, RenewRequest, Renewal, Resolution,
    ResolveRequest, Sighting, Timestamp,
    steps::{self, Change, Step},
};

use crate::copy;

/// A call on its way to a worker.
#[derive(Debug)]
pub(crate) enum Call {
    Claim(ClaimRequest),
    Renew(RenewRequest),
    Complete(CompleteRequest),
    Release(ReleaseRequest),
    Abandon(AbandonRequest),
    Resolve(ResolveRequest),
    Erase(KeyHash),
    Forget(KeyHash),
    /// T12 for one key.
    Purge(KeyHash),
    Get(KeyHash),
    /// No step: about a copy of another store's record.
    Copy(copy::Ask),
}

/// The answer to a call of the same kind.
#[derive(Debug)]
pub(crate) enum Said {
    Claim(Claim),
    Renew(Renewal),
    Complete(Completion),
    Release(Release),
    Abandon(Abandonment),
    Resolve(Resolution),
    Erase(Erasure),
    Forget(Forgetting),
    Purge(Tidied),
    Get(Option<Sighting>),
    Copy(copy::Said),
}

/// What cleanup did with one key.
#[derive(Debug)]
pub(crate) struct Tidied {
    /// Its owner was lost, and it is Unknown now.
    pub(crate) held: bool,
    /// What is there now.
    pub(crate) left: Option<Record>,
}

impl Call {
    pub(crate) const fn key(&self) -> &KeyHash {
        match self {
            Self::Claim(request) => &request.key,
            Self::Renew(request) => &request.owner.key,
            Self::Complete(request) => &request.owner.key,
            Self::Release(request) => &request.owner.key,
            Self::Abandon(request) => &request.owner.key,
            Self::Resolve(request) => &request.key,
            Self::Erase(key) | Self::Forget(key) | Self::Purge(key) | Self::Get(key) => key,
            Self::Copy(ask) => ask.key(),
        }
    }

    /// The step of the protocol that this call is.
    pub(crate) fn step(&self, record: Option<&Record>, now: Timestamp) -> Step<Said> {
        match self {
            Self::Claim(request) => said(steps::claim(record, request, now), Said::Claim),
            Self::Renew(request) => said(steps::renew(record, request, now), Said::Renew),
            Self::Complete(request) => said(steps::complete(record, request, now), Said::Complete),
            Self::Release(request) => said(steps::release(record, request, now), Said::Release),
            Self::Abandon(request) => said(steps::abandon(record, request, now), Said::Abandon),
            Self::Resolve(request) => said(steps::resolve(record, request, now), Said::Resolve),
            Self::Erase(_) => said(steps::erase(record, now), Said::Erase),
            Self::Forget(_) => said(steps::forget(record, now), Said::Forget),
            Self::Purge(_) => tidied(record, now),
            Self::Get(_) => {
                let live = record.filter(|record| !record.is_expired(now)).cloned();
                let sighting = live.map(|record| Sighting { record, at: now });
                Step { change: Change::Keep, answer: Said::Get(sighting) }
            }
            Self::Copy(_) => unreachable!("a copy is not decided by the steps"),
        }
    }

    /// True for a step that ends what others may have remembered.
    pub(crate) const fn is_told_to_all(&self) -> bool {
        match self {
            Self::Resolve(_) | Self::Erase(_) | Self::Forget(_) => true,
            Self::Claim(_)
            | Self::Renew(_)
            | Self::Complete(_)
            | Self::Release(_)
            | Self::Abandon(_)
            | Self::Purge(_)
            | Self::Get(_)
            | Self::Copy(_) => false,
        }
    }
}

fn said<A>(step: Step<A>, say: impl FnOnce(A) -> Said) -> Step<Said> {
    Step { change: step.change, answer: say(step.answer) }
}

fn tidied(record: Option<&Record>, now: Timestamp) -> Step<Said> {
    let change = record.map_or(Change::Keep, |record| steps::purge(record, now));
    let tidied = match &change {
        Change::Keep => Tidied { held: false, left: record.cloned() },
        Change::Put(unknown) => Tidied { held: true, left: Some(unknown.clone()) },
        Change::Delete => Tidied { held: false, left: None },
    };
    // What has expired, Redis deletes by itself.
    let change = if change == Change::Delete { Change::Keep } else { change };
    Step { change, answer: Said::Purge(tidied) }
}
