//! The requests to a store and their replies, one pair per step of the protocol.

use std::{sync::Arc, time::Duration};

use crate::{Fingerprint, KeyHash, Labels, Nonce, Outcome, Record, State, Terms, Timestamp, Token};

/// Claims a key (T1–T5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRequest {
    /// The key.
    pub key: KeyHash,
    /// The fingerprint of the caller's request.
    pub fingerprint: Fingerprint,
    /// Identifies this claim call; only a retry after a lost reply uses it again.
    pub nonce: Nonce,
    /// The claimant's terms; they bind no other owner.
    pub terms: Terms,
    /// For operators; `None` when redaction is on.
    pub labels: Option<Labels>,
}

/// The reply to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The caller owns the key. It must complete, release or abandon it.
    Granted(Lease),
    /// The operation is done; this is its outcome.
    Replay(Replay),
    /// Another owner has the key.
    Busy {
        /// What is left of the owner's lease; zero for a delayed duplicate of an abandoned claim.
        remaining: Duration,
    },
    /// The key was used with another fingerprint.
    Mismatch,
    /// The owner was lost, or did not know whether the work took effect.
    Unknown,
    /// Out of attempts.
    Dead,
    /// Erased by an operator.
    Gone,
    /// This is a delayed duplicate of a claim that was already released. Nothing is granted.
    Released,
}

/// A recorded outcome for a caller that repeats the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// What the work produced.
    pub outcome: Arc<Outcome>,
    /// Which attempt produced it.
    pub attempt: u32,
    /// How long ago it was recorded.
    pub age: Duration,
    /// How long it is still kept.
    pub remaining: Duration,
    /// True when a [`Cached`](crate::Cached) layer replied, and not the store.
    pub cached: bool,
}

/// A key, and the pair that identifies its owner. Both halves are compared: the token alone is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The key.
    pub key: KeyHash,
    /// The random half.
    pub nonce: Nonce,
    /// The counting half.
    pub token: Token,
}

/// The lease of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The owner that holds it.
    pub owner: Owner,
    /// Which attempt this is, counted from one.
    pub attempt: u32,
    /// How long the owner holds the key without a renewal.
    pub length: Duration,
    /// True when the previous owner was lost: it neither settled nor abandoned the key.
    pub takeover: bool,
}

/// Renews a lease (T6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RenewRequest {
    /// The owner that renews.
    pub owner: Owner,
    /// A lease is not renewed beyond this time since the claim.
    pub max_run: Duration,
    /// How long the owner waits for the reply. A store on a server then gives the connection up and opens another one:
    /// the renewal has to arrive in the grace period of a contested key. `None`: the store's own timeout.
    pub reply_within: Option<Duration>,
}

impl RenewRequest {
    /// A renewal that waits as long as any other request.
    #[must_use]
    pub const fn new(owner: Owner, max_run: Duration) -> Self {
        Self { owner, max_run, reply_within: None }
    }

    /// Sets how long the owner waits for the reply.
    #[must_use]
    pub const fn reply_within(mut self, reply_within: Duration) -> Self {
        self.reply_within = Some(reply_within);
        self
    }
}

/// The reply to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// The lease starts again with its full length.
    Extended,
    /// The caller does not own the key any more, or its run took longer than `max_run`.
    Lost,
}

/// Records an outcome (T7).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CompleteRequest {
    /// The owner that records.
    pub owner: Owner,
    /// What the work produced.
    pub outcome: Arc<Outcome>,
}

/// The reply to a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The outcome is recorded, by this call or by an earlier copy of it.
    Recorded,
    /// The caller does not own the key any more; this is its state.
    Superseded(Current),
    /// There is no record. A completion never makes one.
    Missing,
}

/// What the owner knows about the effect when it releases a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The owner attests that the work had no effect.
    None,
    /// The work may have had an effect, and is to be repeated.
    Possible,
}

/// Releases a key (T8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReleaseRequest {
    /// The owner that releases.
    pub owner: Owner,
    /// The effect of the work under this claim.
    pub effect: Effect,
}

/// The reply to a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// The key may be claimed.
    Open,
    /// The key is in hold mode, and the work may have had an effect.
    Unknown,
    /// The caller does not own the key any more; this is its state.
    Superseded(Current),
    /// There is no record.
    Missing,
}

/// Abandons a key when it is not known whether the work took effect (T9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AbandonRequest {
    /// The owner that abandons.
    pub owner: Owner,
    /// How long the lease still lasts before another owner may take over.
    pub backoff: Duration,
}

/// The reply to an abandonment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Abandonment {
    /// Another owner may take over once the backoff has passed.
    Lapsing,
    /// The key waits until an operator resolves it.
    Unknown,
    /// The caller does not own the key any more; this is its state.
    Superseded(Current),
    /// There is no record.
    Missing,
}

/// The state of a key, for a caller that does not own it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Current {
    /// Released.
    Open,
    /// Owned.
    InProgress {
        /// What is left of the lease.
        remaining: Duration,
    },
    /// Done.
    Completed(Replay),
    /// Waiting for an operator.
    Unknown,
    /// Out of attempts.
    Dead,
    /// Erased.
    Erased,
}

/// An operator's decision about a stuck key (T10).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResolveRequest {
    /// The key.
    pub key: KeyHash,
    /// The nonce of the record that the operator saw.
    pub seen_nonce: Option<Nonce>,
    /// The token of the record that the operator saw.
    pub seen_token: Token,
    /// The operator's decision.
    pub decision: Decision,
}

/// What an operator decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The operation is done, with this outcome.
    Complete(Arc<Outcome>),
    /// The operation may run again. [`Effect::None`] attests that the work had no effect, and removes the fingerprint.
    Reopen(Effect),
}

/// The reply to a resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The decision is carried out.
    Done,
    /// The key is not stuck, or has changed since the operator saw it.
    Refused(Current),
    /// There is no record.
    Missing,
}

/// The reply to an erasure (T11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Erasure {
    /// A tombstone is left.
    Erased,
    /// There is no record.
    Missing,
}

/// The reply to a request to forget a key (T13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forgetting {
    /// The record is deleted; the next claim counts as the first one.
    Forgotten,
    /// Forgetting a key in this state could run its work twice.
    Refused(State),
    /// There is no record.
    Missing,
}

/// What a purge (T12) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Purged {
    /// Records deleted because they had expired.
    pub deleted: usize,
    /// Records in hold mode whose owner was lost; they are Unknown now.
    pub held: usize,
}

impl Purged {
    /// Records that were deleted or changed.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.deleted + self.held
    }
}

/// A record as it was at an instant of store time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The record.
    pub record: Record,
    /// When it was read, by the store's clock.
    pub at: Timestamp,
}

/// Which records to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// Only records in this state.
    pub state: Option<State>,
    /// Only records with this namespace in their labels.
    pub namespace: Option<String>,
    /// Only records after this key, which is the last one of the previous page.
    pub after: Option<KeyHash>,
    /// At most this many.
    pub limit: usize,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self { state: None, namespace: None, after: None, limit: Self::DEFAULT_LIMIT }
    }
}

impl ListQuery {
    /// Records per page unless set otherwise.
    pub const DEFAULT_LIMIT: usize = 100;

    /// True for a record that matches, on whatever page.
    #[must_use]
    pub fn matches(&self, record: &Record) -> bool {
        self.state.is_none_or(|state| state == record.state)
            && self.namespace.as_ref().is_none_or(|wanted| {
                record.labels.as_ref().is_some_and(|labels| labels.namespace() == wanted)
            })
    }
}

/// Numbers of records in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records, expired ones included until they are purged.
    pub records: u64,
    /// Of these, Unknown.
    pub unknown: u64,
    /// Of these, Dead.
    pub dead: u64,
}
