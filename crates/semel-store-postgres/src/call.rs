//! What a worker is asked, and what it says.

use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, Record, Release, ReleaseRequest, RenewRequest, Renewal, Resolution,
    ResolveRequest, Sighting, Timestamp,
    steps::{self, Change, Step},
};

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
    Get(KeyHash),
    /// One that came back, since somebody else had locked its record.
    Again(Box<Self>),
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
    Get(Option<Sighting>),
    /// To any kind: somebody else has locked the record, nothing happened, and here is the call back.
    Locked(Box<Call>),
}

impl Call {
    /// Bytes it carries, near enough.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Complete(request) => request.outcome.size(),
            _ => 0,
        }
    }

    pub(crate) const fn key(&self) -> &KeyHash {
        match self {
            Self::Claim(request) => &request.key,
            Self::Renew(request) => &request.owner.key,
            Self::Complete(request) => &request.owner.key,
            Self::Release(request) => &request.owner.key,
            Self::Abandon(request) => &request.owner.key,
            Self::Resolve(request) => &request.key,
            Self::Erase(key) | Self::Forget(key) | Self::Get(key) => key,
            Self::Again(call) => call.key(),
        }
    }

    /// Runs the step that the protocol has for this call.
    pub(crate) fn step(&self, record: Option<&Record>, now: Timestamp) -> (Change, Said) {
        match self {
            Self::Claim(request) => said(steps::claim(record, request, now), Said::Claim),
            Self::Renew(request) => said(steps::renew(record, request, now), Said::Renew),
            Self::Complete(request) => said(steps::complete(record, request, now), Said::Complete),
            Self::Release(request) => said(steps::release(record, request, now), Said::Release),
            Self::Abandon(request) => said(steps::abandon(record, request, now), Said::Abandon),
            Self::Resolve(request) => said(steps::resolve(record, request, now), Said::Resolve),
            Self::Erase(_) => said(steps::erase(record, now), Said::Erase),
            Self::Forget(_) => said(steps::forget(record, now), Said::Forget),
            Self::Get(_) => {
                let live = record.filter(|record| !record.is_expired(now));
                let sighting = live.map(|record| Sighting { record: record.clone(), at: now });
                (Change::Keep, Said::Get(sighting))
            }
            Self::Again(call) => call.step(record, now),
        }
    }

    /// True for what caches have to hear of, whether or not anybody waits.
    pub(crate) const fn is_operators(&self) -> bool {
        match self {
            Self::Resolve(_) | Self::Erase(_) | Self::Forget(_) => true,
            Self::Again(call) => call.is_operators(),
            Self::Claim(_)
            | Self::Renew(_)
            | Self::Complete(_)
            | Self::Release(_)
            | Self::Abandon(_)
            | Self::Get(_) => false,
        }
    }

    /// The same, to be made once more.
    pub(crate) fn again(self) -> Self {
        match self {
            Self::Again(_) => self,
            first => Self::Again(Box::new(first)),
        }
    }
}

fn said<A>(step: Step<A>, say: impl FnOnce(A) -> Said) -> (Change, Said) {
    (step.change, say(step.answer))
}
