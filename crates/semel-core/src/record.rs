//! The record: everything a store keeps about one key.

use std::{fmt, num::NonZeroU32, sync::Arc};

use crate::{Fingerprint, KeyHash, Labels, Outcome, Span, Timestamp};

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Released: anybody may claim it; token and attempts are kept.
    Open,
    /// Owned by whoever holds the lease.
    InProgress,
    /// The outcome is recorded.
    Completed,
    /// The owner was lost or could not say what happened; an operator decides.
    Unknown,
    /// Out of attempts.
    Dead,
    /// Erased by an operator; a tombstone that still stops duplicates.
    Erased,
}

/// What happens to a key whose owner was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLostOwner {
    /// The next claim runs the work again.
    #[default]
    Rerun,
    /// Nobody runs it again; the key is Unknown until an operator resolves it.
    Hold,
}

/// The random half of an owner's identity. One belongs to one claim call, and to its retries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// A nonce nobody has used.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// A nonce read back from a store.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Marks what `claimant` found: no other claim's, and nobody holds it. Every bit is flipped.
    pub(crate) fn of_nobody(claimant: Self) -> Self {
        Self(claimant.0.map(|byte| !byte))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(")?;
        crate::hash::write_hex(f, &self.0[..4])?;
        f.write_str(")")
    }
}

/// The counting half of an owner's identity. It rises within one record's life and orders writes;
/// it does not deduplicate effects, and it starts again when the record is gone.
pub type Token = u64;

/// What a claim asks of the store, from the claimant's [`Policy`](crate::Policy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How long the owner may stay silent.
    pub lease: Span,
    /// Fixed by the claim that creates the record.
    pub on_lost_owner: OnLostOwner,
    /// Fixed by the claim that creates the record. `None`: no cap.
    pub max_attempts: Option<NonZeroU32>,
    /// How long a success is kept, from completion.
    pub retention: Span,
    /// How long a final failure or a dead key is kept.
    pub failure_retention: Span,
}

impl Terms {
    /// How long this outcome is kept, from completion.
    #[must_use]
    pub fn kept(&self, outcome: &Outcome) -> Span {
        if outcome.is_success() { self.retention } else { self.failure_retention }
    }

    /// Terms whose spans are [`Span::bounded`].
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            lease: self.lease.bounded(),
            retention: self.retention.bounded(),
            failure_retention: self.failure_retention.bounded(),
            ..self
        }
    }
}

/// Everything a store keeps about one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Whose record this is. A reader checks it: a mixed-up reply must not become an answer.
    pub key: KeyHash,
    /// Where the key stands.
    pub state: State,
    /// What was asked, unless nothing is pinned.
    pub fingerprint: Option<Fingerprint>,
    /// Who owns or last owned it. Of a key that died released: the nonce of the claim that found it
    /// so, with every bit flipped. It names this death, and nobody holds it.
    pub nonce: Option<Nonce>,
    /// Rises with every grant.
    pub token: Token,
    /// Grants since the record was made or reopened.
    pub attempts: u32,
    /// An earlier attempt ended without attesting that nothing happened.
    pub dirty: bool,
    /// The owner gave up without knowing what happened; it may complete, but not renew.
    pub abandoned: bool,
    /// When the current owner was granted the key.
    pub claimed_at: Timestamp,
    /// The lease is live while this is after store time.
    pub lease_until: Timestamp,
    /// Terms in force: lease and retentions of the current owner, the rest of the first.
    pub terms: Terms,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the outcome was recorded.
    pub completed_at: Option<Timestamp>,
    /// From when on the record counts as absent.
    pub expires_at: Option<Timestamp>,
    /// What the work produced.
    pub outcome: Option<Arc<Outcome>>,
    /// For operators; left out when redaction is on.
    pub labels: Option<Labels>,
}

impl Record {
    /// T0: true when every step treats this record as absent.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// True while the owner's lease runs.
    #[must_use]
    pub fn is_leased(&self, now: Timestamp) -> bool {
        self.state == State::InProgress && self.lease_until > now
    }

    /// When purge will next have something to do with this record.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        match (self.state, self.terms.on_lost_owner) {
            (State::InProgress, OnLostOwner::Hold) => Some(self.lease_until),
            _ => self.expires_at,
        }
    }

    /// A time that is not after [`Record::due_at`], now or after a completion, so that one entry in
    /// a [`DueQueue`](crate::DueQueue) serves both.
    #[must_use]
    pub fn look_at(&self) -> Option<Timestamp> {
        match (self.state, self.terms.on_lost_owner) {
            (State::InProgress, OnLostOwner::Rerun) => {
                Some(self.claimed_at.after(self.terms.retention))
            }
            _ => self.due_at(),
        }
    }

    /// Bytes this record takes up, near enough to hold a bound.
    #[must_use]
    pub fn size(&self) -> usize {
        size_of::<Self>()
            + self.outcome.as_ref().map_or(0, |outcome| outcome.size())
            + self.labels.as_ref().map_or(0, Labels::len)
    }
}
