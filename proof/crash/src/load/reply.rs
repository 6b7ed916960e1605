//! What a store answered, as the history tells it.

use semel_core::{Abandonment, Claim, Completion, Erasure, Forgetting, Lease, Release, Renewal};

use super::outcome::describe;
use crate::event::{Answer, Detail};

pub(super) fn answered(answer: Answer) -> Detail {
    Detail { answer: Some(answer), ..Detail::default() }
}

/// What was asked, and over it what was told.
pub(super) fn merge(asked: &Detail, told: Detail) -> Detail {
    Detail {
        key: asked.key,
        fingerprint: told.fingerprint.or(asked.fingerprint),
        nonce: told.nonce.or(asked.nonce),
        token: told.token.or(asked.token),
        digest: told.digest.or(asked.digest),
        ..told
    }
}

pub(super) fn told_claim(claim: &Claim) -> Detail {
    match claim {
        Claim::Granted(Lease { owner, attempt, takeover, .. }) => Detail {
            token: Some(owner.token),
            attempt: Some(*attempt),
            takeover: *takeover,
            ..answered(Answer::Granted)
        },
        Claim::Replay(replay) => {
            let outcome = describe(&replay.outcome);
            Detail { attempt: Some(replay.attempt), answer: Some(Answer::Replay), ..outcome }
        }
        Claim::Busy { .. } => answered(Answer::Busy),
        Claim::Mismatch => answered(Answer::Mismatch),
        Claim::Unknown => answered(Answer::Unknown),
        Claim::Dead => answered(Answer::Dead),
        Claim::Gone => answered(Answer::Gone),
        Claim::Released => answered(Answer::Released),
    }
}

pub(super) fn told_renewal(renewal: &Renewal) -> Detail {
    answered(match renewal {
        Renewal::Extended => Answer::Extended,
        Renewal::Lost => Answer::Lost,
    })
}

pub(super) fn told_completion(completion: &Completion) -> Detail {
    answered(match completion {
        Completion::Recorded => Answer::Recorded,
        Completion::Superseded(_) => Answer::Superseded,
        Completion::Missing => Answer::Missing,
    })
}

pub(super) fn told_release(release: &Release) -> Detail {
    answered(match release {
        Release::Open => Answer::Open,
        Release::Unknown => Answer::Unknown,
        Release::Superseded(_) => Answer::Superseded,
        Release::Missing => Answer::Missing,
    })
}

pub(super) fn told_abandonment(abandonment: &Abandonment) -> Detail {
    answered(match abandonment {
        Abandonment::Lapsing => Answer::Lapsing,
        Abandonment::Unknown => Answer::Unknown,
        Abandonment::Superseded(_) => Answer::Superseded,
        Abandonment::Missing => Answer::Missing,
    })
}

pub(super) fn told_erasure(erasure: &Erasure) -> Detail {
    answered(match erasure {
        Erasure::Erased => Answer::Erased,
        Erasure::Missing => Answer::Missing,
    })
}

pub(super) fn told_forgetting(forgetting: &Forgetting) -> Detail {
    answered(match forgetting {
        Forgetting::Forgotten => Answer::Forgotten,
        Forgetting::Refused(_) => Answer::Refused,
        Forgetting::Missing => Answer::Missing,
    })
}
