//! What is asked of a store and what it answers, one pair per step of the protocol.

use std::{sync::Arc, time::Duration};

use crate::{Fingerprint, KeyHash, Labels, Nonce, Outcome, Record, State, Terms, Timestamp, Token};

/// Asks for a key (T1–T5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRequest {
    /// The key.
    pub key: KeyHash,
    /// What is asked under that key.
    pub fingerprint: Fingerprint,
    /// Names this claim call; only a retry after a lost reply uses it again.
    pub nonce: Nonce,
    /// The claimant's terms; they bind nobody else.
    pub terms: Terms,
    /// For operators; `None` when redaction is on.
    pub labels: Option<Labels>,
}

/// What a claim is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The key is the caller's. It must complete, release or abandon it.
    Granted(Lease),
    /// The operation is done; this is what it produced.
    Replay(Replay),
    /// Somebody owns the key.
    Busy {
        /// What is left of the owner's lease; zero when a late copy met an abandoned claim.
        remaining: Duration,
    },
    /// The key stands for something else that was asked.
    Mismatch,
    /// The owner was lost or could not say what happened.
    Unknown,
    /// Out of attempts.
    Dead,
    /// Erased by an operator.
    Gone,
    /// A late copy of a claim that was already released: nobody is granted anything.
    Released,
}

/// A recorded outcome on its way to somebody who asks again.
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
    /// A [`Cached`](crate::Cached) layer answered, and not the store itself.
    pub cached: bool,
}

/// The pair that identifies an owner, and its key. Compared whole: the token alone is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The key.
    pub key: KeyHash,
    /// The random half.
    pub nonce: Nonce,
    /// The counting half.
    pub token: Token,
}

/// What an owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Who holds it.
    pub owner: Owner,
    /// Which attempt this is, counted from one.
    pub attempt: u32,
    /// How long the owner may stay silent.
    pub length: Duration,
    /// The previous owner was lost: it neither came to an end nor gave up.
    pub takeover: bool,
}

/// Keeps a lease (T6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RenewRequest {
    /// Who renews.
    pub owner: Owner,
    /// A lease is not renewed beyond this time since the claim.
    pub max_run: Duration,
}

/// What a renewal is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// The lease runs for its full length again.
    Extended,
    /// The lease is not the caller's any more, or ran too long.
    Lost,
}

/// Records an outcome (T7).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CompleteRequest {
    /// Who records.
    pub owner: Owner,
    /// What the work produced.
    pub outcome: Arc<Outcome>,
}

/// What a completion is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Recorded now, or by an earlier copy of this call.
    Recorded,
    /// The key is another's; this is how it stands.
    Superseded(Current),
    /// There is no record. A completion never makes one.
    Missing,
}

/// What the owner knows about the effect when it gives a key back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The owner attests that nothing happened.
    None,
    /// Something may have happened; the work wants to be tried again.
    Possible,
}

/// Gives a key back (T8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReleaseRequest {
    /// Who releases.
    pub owner: Owner,
    /// What happened under this claim.
    pub effect: Effect,
}

/// What a release is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// Anybody may claim the key.
    Open,
    /// The key is on hold, and something may have happened.
    Unknown,
    /// The key is another's; this is how it stands.
    Superseded(Current),
    /// There is no record.
    Missing,
}

/// Gives up without knowing what happened (T9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AbandonRequest {
    /// Who gives up.
    pub owner: Owner,
    /// How long others wait before they may take over.
    pub backoff: Duration,
}

/// What an abandonment is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Abandonment {
    /// Others may take over once the backoff has passed.
    Lapsing,
    /// The key is on hold until an operator resolves it.
    Unknown,
    /// The key is another's; this is how it stands.
    Superseded(Current),
    /// There is no record.
    Missing,
}

/// How a key stands, seen by somebody it does not belong to.
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
    /// The nonce of the record the operator looked at.
    pub seen_nonce: Option<Nonce>,
    /// The token of the record the operator looked at.
    pub seen_token: Token,
    /// What is to become of it.
    pub decision: Decision,
}

/// What an operator decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The operation is done, with this outcome.
    Complete(Arc<Outcome>),
    /// It may run again. [`Effect::None`] attests that nothing happened and unpins the fingerprint.
    Reopen(Effect),
}

/// What a resolution is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Decided.
    Done,
    /// The key is not stuck, or moved on since the operator looked.
    Refused(Current),
    /// There is no record.
    Missing,
}

/// What an erasure (T11) is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Erasure {
    /// A tombstone is left.
    Erased,
    /// There is no record.
    Missing,
}

/// What a forgetting (T13) is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forgetting {
    /// The record is gone; the next claim is a first one.
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
    /// Records on hold whose owner was lost; they are Unknown now.
    pub held: usize,
}

impl Purged {
    /// Records it did something to.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.deleted + self.held
    }
}

/// A record as it stood at an instant of store time.
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
    /// Only records after this key: the last one of the page before.
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
    /// Records per page unless asked otherwise.
    pub const DEFAULT_LIMIT: usize = 100;

    /// True for a record that is wanted, whatever the page.
    #[must_use]
    pub fn matches(&self, record: &Record) -> bool {
        self.state.is_none_or(|state| state == record.state)
            && self.namespace.as_ref().is_none_or(|wanted| {
                record.labels.as_ref().is_some_and(|labels| labels.namespace() == wanted)
            })
    }
}

/// How full a store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records, expired ones included until they are purged.
    pub records: u64,
    /// Of these, Unknown.
    pub unknown: u64,
    /// Of these, Dead.
    pub dead: u64,
}
