//! From an authority's answer to a copy, and from a copy to an answer.

use std::sync::Arc;

use super::Replica;
use crate::{
    Claim, ClaimRequest, Fingerprint, KeyHash, OnLostOwner, Outcome, Record, Replay, Span, State,
    Terms, Timestamp, steps,
};

/// What a copy is made of.
pub(super) struct Original {
    pub(super) key: KeyHash,
    pub(super) fingerprint: Fingerprint,
    pub(super) outcome: Arc<Outcome>,
    pub(super) attempt: u32,
    /// From completion to expiry.
    pub(super) kept: Span,
}

impl Original {
    /// What the authority replayed.
    pub(super) fn replayed(request: &ClaimRequest, replay: &Replay) -> Replica {
        let original = Self {
            key: request.key,
            fingerprint: request.fingerprint,
            outcome: replay.outcome.clone(),
            attempt: replay.attempt,
            kept: replay.age.saturating_add(replay.remaining).into(),
        };
        Replica { record: original.record(), remaining: replay.remaining }
    }

    /// What was completed a moment ago.
    pub(super) fn completed(self) -> Replica {
        let remaining = self.kept.to_duration();
        Replica { record: self.record(), remaining }
    }

    /// No labels: what only operators read stays with the authority.
    fn record(self) -> Record {
        let none = Span::from_millis(0);
        Record {
            key: self.key,
            state: State::Completed,
            fingerprint: Some(self.fingerprint),
            nonce: None,
            token: 0,
            attempts: self.attempt,
            dirty: false,
            abandoned: false,
            claimed_at: Timestamp::default(),
            lease_until: Timestamp::default(),
            terms: Terms {
                lease: none,
                on_lost_owner: OnLostOwner::Rerun,
                max_attempts: None,
                retention: self.kept,
                failure_retention: self.kept,
            },
            created_at: Timestamp::default(),
            completed_at: Some(Timestamp::default()),
            expires_at: Some(Timestamp::default().after(self.kept)),
            outcome: Some(self.outcome),
            labels: None,
        }
    }
}

/// What the protocol answers from a copy, if that is a replay. Anything else is the authority's to say: it
/// knows what is pinned.
pub(super) fn answer(copy: &Replica, request: &ClaimRequest) -> Option<Claim> {
    let record = &copy.record;
    let is_whole = record.state == State::Completed && record.outcome.is_some();
    if record.key != request.key || !is_whole || record.fingerprint.is_none() {
        return None;
    }
    // Only differences of times mean anything in a copy.
    let at = record.expires_at?.before(copy.remaining);
    match steps::claim(Some(record), request, at).answer {
        replay @ Claim::Replay(_) => Some(replay),
        Claim::Granted(_)
        | Claim::Busy { .. }
        | Claim::Mismatch
        | Claim::Unknown
        | Claim::Dead
        | Claim::Gone
        | Claim::Released => None,
    }
}
