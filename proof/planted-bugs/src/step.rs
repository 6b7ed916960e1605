//! A step on one key as a value, so that a planted bug can read and change it.

use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, Record, Release, ReleaseRequest, RenewRequest, Renewal, Resolution, ResolveRequest,
    Timestamp,
    steps::{self, Change, Step},
};

/// The request of a step.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are those of the steps")]
pub enum StepRequest {
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

/// The reply of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the steps")]
pub enum StepReply {
    Claim(Claim),
    Renew(Renewal),
    Complete(Completion),
    Release(Release),
    Abandon(Abandonment),
    Resolve(Resolution),
    Erase(Erasure),
    Forget(Forgetting),
    /// A purge has no reply for a single record; the stored record shows what it did.
    Purge,
}

impl StepRequest {
    /// Runs the real step.
    pub(crate) fn run(&self, record: Option<&Record>, now: Timestamp) -> Step<StepReply> {
        match self {
            Self::Claim(request) => wrap(steps::claim(record, request, now), StepReply::Claim),
            Self::Renew(request) => wrap(steps::renew(record, request, now), StepReply::Renew),
            Self::Complete(request) => {
                wrap(steps::complete(record, request, now), StepReply::Complete)
            }
            Self::Release(request) => {
                wrap(steps::release(record, request, now), StepReply::Release)
            }
            Self::Abandon(request) => {
                wrap(steps::abandon(record, request, now), StepReply::Abandon)
            }
            Self::Resolve(request) => {
                wrap(steps::resolve(record, request, now), StepReply::Resolve)
            }
            Self::Erase => wrap(steps::erase(record, now), StepReply::Erase),
            Self::Forget => wrap(steps::forget(record, now), StepReply::Forget),
            Self::Purge => {
                let change = record.map_or(Change::Keep, |record| steps::purge(record, now));
                Step { change, answer: StepReply::Purge }
            }
        }
    }
}

fn wrap<A>(step: Step<A>, answer: fn(A) -> StepReply) -> Step<StepReply> {
    Step { change: step.change, answer: answer(step.answer) }
}
