//! Describes the replies of a store for the history.

use semel_core::{Abandonment, Claim, Completion, Erasure, Forgetting, Lease, Release, Renewal};

use super::outcome::describe;
use crate::event::{Detail, ReplyKind};

pub(super) fn reply_of(answer: ReplyKind) -> Detail {
    Detail { reply: Some(answer), ..Detail::default() }
}

/// The fields of the request, overridden by those of the reply.
pub(super) fn merge(request: &Detail, reply: Detail) -> Detail {
    Detail {
        key: request.key,
        fingerprint: reply.fingerprint.or(request.fingerprint),
        nonce: reply.nonce.or(request.nonce),
        token: reply.token.or(request.token),
        digest: reply.digest.or(request.digest),
        ..reply
    }
}

pub(super) fn claim_reply(claim: &Claim) -> Detail {
    match claim {
        Claim::Granted(Lease { owner, attempt, takeover, .. }) => Detail {
            token: Some(owner.token),
            attempt: Some(*attempt),
            takeover: *takeover,
            ..reply_of(ReplyKind::Granted)
        },
        Claim::Replay(replay) => {
            let outcome = describe(&replay.outcome);
            Detail { attempt: Some(replay.attempt), reply: Some(ReplyKind::Replay), ..outcome }
        }
        Claim::Busy { .. } => reply_of(ReplyKind::Busy),
        Claim::Mismatch => reply_of(ReplyKind::Mismatch),
        Claim::Unknown => reply_of(ReplyKind::Unknown),
        Claim::Dead => reply_of(ReplyKind::Dead),
        Claim::Gone => reply_of(ReplyKind::Gone),
        Claim::Released => reply_of(ReplyKind::Released),
    }
}

pub(super) fn renewal_reply(renewal: &Renewal) -> Detail {
    reply_of(match renewal {
        Renewal::Extended => ReplyKind::Extended,
        Renewal::Lost => ReplyKind::Lost,
    })
}

pub(super) fn completion_reply(completion: &Completion) -> Detail {
    reply_of(match completion {
        Completion::Recorded => ReplyKind::Recorded,
        Completion::Superseded(_) => ReplyKind::Superseded,
        Completion::Missing => ReplyKind::Missing,
    })
}

pub(super) fn release_reply(release: &Release) -> Detail {
    reply_of(match release {
        Release::Open => ReplyKind::Open,
        Release::Unknown => ReplyKind::Unknown,
        Release::Superseded(_) => ReplyKind::Superseded,
        Release::Missing => ReplyKind::Missing,
    })
}

pub(super) fn abandonment_reply(abandonment: &Abandonment) -> Detail {
    reply_of(match abandonment {
        Abandonment::Lapsing => ReplyKind::Lapsing,
        Abandonment::Unknown => ReplyKind::Unknown,
        Abandonment::Superseded(_) => ReplyKind::Superseded,
        Abandonment::Missing => ReplyKind::Missing,
    })
}

pub(super) fn erasure_reply(erasure: &Erasure) -> Detail {
    reply_of(match erasure {
        Erasure::Erased => ReplyKind::Erased,
        Erasure::Missing => ReplyKind::Missing,
    })
}

pub(super) fn forgetting_reply(forgetting: &Forgetting) -> Detail {
    reply_of(match forgetting {
        Forgetting::Forgotten => ReplyKind::Forgotten,
        Forgetting::Refused(_) => ReplyKind::Refused,
        Forgetting::Missing => ReplyKind::Missing,
    })
}
