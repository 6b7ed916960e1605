//! Makes a replica from the authority's reply, and the reply to a claim from a replica.

use std::sync::Arc;

use super::Replica;
use crate::{
    Claim, ClaimRequest, Fingerprint, KeyHash, OnLostOwner, Outcome, Record, Replay, Span, State,
    Terms, Timestamp, steps,
};

/// What a replica is made of.
pub(super) struct ReplicaSource {
    pub(super) key: KeyHash,
    pub(super) fingerprint: Fingerprint,
    pub(super) outcome: Arc<Outcome>,
    pub(super) attempt: u32,
    /// From completion to expiry.
    pub(super) kept: Span,
}

impl ReplicaSource {
    /// The replica of an outcome that the authority replayed.
    pub(super) fn replayed(request: &ClaimRequest, replay: &Replay) -> Replica {
        let source = Self {
            key: request.key,
            fingerprint: request.fingerprint,
            outcome: replay.outcome.clone(),
            attempt: replay.attempt,
            kept: replay.age.saturating_add(replay.remaining).into(),
        };
        Replica { record: source.record(), remaining: replay.remaining }
    }

    /// The replica of an outcome that was just recorded.
    pub(super) fn completed(self) -> Replica {
        let remaining = self.kept.to_duration();
        Replica { record: self.record(), remaining }
    }

    /// Without labels: only operators read them, at the authority.
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
            contested: false,
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

/// The replay that the protocol's claim step gives for this replica. Any other reply has to come from the authority,
/// which has the whole record.
pub(super) fn replay(replica: &Replica, request: &ClaimRequest) -> Option<Claim> {
    let record = &replica.record;
    let is_whole = record.state == State::Completed && record.outcome.is_some();
    if record.key != request.key || !is_whole || record.fingerprint.is_none() {
        return None;
    }
    // In a replica only differences between times mean anything.
    let at = record.expires_at?.before(replica.remaining);
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
