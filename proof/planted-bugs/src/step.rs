//! A step on one key as a value, so that a flaw can look at it and change it.

use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, Record, Release, ReleaseRequest, RenewRequest, Renewal, Resolution, ResolveRequest,
    Timestamp,
    steps::{self, Change, Step},
};

/// What is asked.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are those of the steps")]
pub enum Call {
    Claim(ClaimRequest),
    Renew(RenewRequest),
    Complete(CompleteRequest),
    Release(ReleaseRequest),
    Abandon(AbandonRequest),
    Resolve(ResolveRequest),
    Erase,
    Forget,
    Purge,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the steps")]
pub enum Answer {
    Claim(Claim),
    Renew(Renewal),
    Complete(Completion),
    Release(Release),
    Abandon(Abandonment),
    Resolve(Resolution),
    Erase(Erasure),
    Forget(Forgetting),
    /// A purge says nothing about a single record: see what is stored.
    Purge,
}

impl Call {
    /// The real step.
    pub(crate) fn run(&self, record: Option<&Record>, now: Timestamp) -> Step<Answer> {
        match self {
            Self::Claim(request) => wrap(steps::claim(record, request, now), Answer::Claim),
            Self::Renew(request) => wrap(steps::renew(record, request, now), Answer::Renew),
            Self::Complete(request) => {
                wrap(steps::complete(record, request, now), Answer::Complete)
            }
            Self::Release(request) => wrap(steps::release(record, request, now), Answer::Release),
            Self::Abandon(request) => wrap(steps::abandon(record, request, now), Answer::Abandon),
            Self::Resolve(request) => wrap(steps::resolve(record, request, now), Answer::Resolve),
            Self::Erase => wrap(steps::erase(record, now), Answer::Erase),
            Self::Forget => wrap(steps::forget(record, now), Answer::Forget),
            Self::Purge => {
                let change = record.map_or(Change::Keep, |record| steps::purge(record, now));
                Step { change, answer: Answer::Purge }
            }
        }
    }
}

fn wrap<A>(step: Step<A>, answer: fn(A) -> Answer) -> Step<Answer> {
    Step { change: step.change, answer: answer(step.answer) }
}
