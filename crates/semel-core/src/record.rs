//! The record: everything a store keeps about one key.

use std::{fmt, num::NonZeroU32, sync::Arc};

use crate::{Fingerprint, KeyHash, Labels, Outcome, Span, Timestamp};

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Released: any claim may take it; token and attempts are kept.
    Open,
    /// Owned by the holder of the lease.
    InProgress,
    /// The outcome is recorded.
    Completed,
    /// The owner was lost, or did not know whether the work took effect; an operator decides.
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
    /// The work does not run again; the key is Unknown until an operator resolves it.
    Hold,
}

/// The random half of an owner's identity. Each claim call has its own, and its retries repeat it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// A new nonce.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// A nonce read back from a store.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of the nonce.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Every bit flipped: derived from one claim, equal to the nonce of no claim.
    pub(crate) fn flipped(self) -> Self {
        Self(self.0.map(|byte| !byte))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(")?;
        crate::hash::write_hex(f, &self.0[..4])?;
        f.write_str(")")
    }
}

/// The counting half of an owner's identity. It rises while the record exists and orders writes. It does not
/// deduplicate effects, and it starts again when the record is gone.
pub type Token = u64;

/// The part of a claimant's [`Policy`](crate::Policy) that a record keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How long the owner holds the key without a renewal.
    pub lease: Span,
    /// Fixed by the claim that creates the record.
    pub on_lost_owner: OnLostOwner,
    /// Fixed by the claim that creates the record. `None` for no limit.
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

    /// How long the owner of a contested key still has to renew its lease: a third of the lease. An owner whose
    /// renewal was not answered tries again every twelfth of it, so several of its requests fit in.
    #[must_use]
    pub fn grace_period(&self) -> Span {
        Span::from_millis((self.lease.as_millis() / 3).max(1))
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
    /// The key of the record. A reader compares it, so that a reply about another key is not used.
    pub key: KeyHash,
    /// The state of the key.
    pub state: State,
    /// The fingerprint of the request. `None` after a release without effect.
    pub fingerprint: Option<Fingerprint>,
    /// The nonce of the current or last owner. If the key became Dead after a release: the nonce of the claim that made
    /// it Dead, with every bit flipped. It identifies this death, and no owner has it.
    pub nonce: Option<Nonce>,
    /// Rises with every grant.
    pub token: Token,
    /// Grants since the record was made or reopened.
    pub attempts: u32,
    /// True when an earlier attempt may have had an effect.
    pub dirty: bool,
    /// True when the owner abandoned the key. It may complete, but not renew.
    pub abandoned: bool,
    /// True after a claim has found the lease over. The owner has until [`Record::lease_until`] to renew it; a claim
    /// after that takes the key over.
    pub contested: bool,
    /// When the current owner was granted the key.
    pub claimed_at: Timestamp,
    /// The end of the lease, by the store's clock. Of a contested record: the end of the grace period.
    pub lease_until: Timestamp,
    /// Lease and retentions of the current owner; the other terms of the first one.
    pub terms: Terms,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the outcome was recorded.
    pub completed_at: Option<Timestamp>,
    /// When the record expires and counts as absent.
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

    /// When a purge will next change this record.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        match (self.state, self.terms.on_lost_owner) {
            (State::InProgress, OnLostOwner::Hold) => Some(self.lease_until),
            _ => self.expires_at,
        }
    }

    /// When a purge should check this record: not after [`Record::due_at`], neither now nor after a completion, so that
    /// one entry in a [`DueQueue`](crate::DueQueue) serves both.
    #[must_use]
    pub fn look_at(&self) -> Option<Timestamp> {
        match (self.state, self.terms.on_lost_owner) {
            (State::InProgress, OnLostOwner::Rerun) => {
                Some(self.claimed_at.after(self.terms.retention))
            }
            _ => self.due_at(),
        }
    }

    /// About how many bytes this record takes up.
    #[must_use]
    pub fn size(&self) -> usize {
        size_of::<Self>()
            + self.outcome.as_ref().map_or(0, |outcome| outcome.size())
            + self.labels.as_ref().map_or(0, Labels::len)
    }
}
