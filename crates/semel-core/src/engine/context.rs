//! The context that the work gets: its key, token, attempt, deadline, and the signal that its lease is lost.

use std::{fmt, sync::Arc, time::Duration};

use super::lease_lost::LeaseLost;
use crate::{
    KeyHash, Lease, Token,
    hash::{HashPurpose, hash, write_hex},
    sync::Instant,
};

/// Passed to the work: its key and attempt, and when to stop.
#[derive(Clone, Debug)]
pub struct Context(Arc<ContextInner>);

#[derive(Debug)]
struct ContextInner {
    key: KeyHash,
    token: Token,
    attempt: u32,
    deadline: Instant,
    lost: LeaseLost,
}

impl Context {
    pub(super) fn new(lease: &Lease, deadline: Instant, lost: LeaseLost) -> Self {
        let (key, token) = (lease.owner.key, lease.owner.token);
        Self(Arc::new(ContextInner { key, token, attempt: lease.attempt, deadline, lost }))
    }

    /// The context of a run without protection: token and attempt are 0.
    pub(super) fn unprotected(key: KeyHash, deadline: Instant) -> Self {
        Self(Arc::new(ContextInner {
            key,
            token: 0,
            attempt: 0,
            deadline,
            lost: LeaseLost::default(),
        }))
    }

    /// Which attempt this is, counted from one.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Rises with every attempt while the record lives. It orders writes (`WHERE token >= last`);
    /// it does not deduplicate them.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token
    }

    /// The hash by which the store identifies the key.
    #[must_use]
    pub fn key_hash(&self) -> KeyHash {
        self.0.key
    }

    /// The key to pass on: the same on every attempt, and in every process that has the same hash
    /// secret or none. If the receiver deduplicates on it, the effect happens once.
    #[must_use]
    pub fn downstream_key(&self) -> DownstreamKey {
        DownstreamKey::new(&self.0.key, "")
    }

    /// A separate downstream key for each of several effects, such as `derive("charge")`.
    #[must_use]
    pub fn derive(&self, label: &str) -> DownstreamKey {
        DownstreamKey::new(&self.0.key, label)
    }

    /// True once the lease is lost or about to be: start no new effect.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        self.0.lost.has_fired()
    }

    /// Waits until the lease is lost.
    pub async fn lease_lost(&self) {
        self.0.lost.fired().await;
    }

    /// When the lease is no longer renewed.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.0.deadline
    }

    /// What is left until [`Context::deadline`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.deadline.saturating_duration_since(Instant::now())
    }
}

/// A key for the next service, in the form of a UUID so that every API takes it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DownstreamKey(String);

impl DownstreamKey {
    /// Always the same for the same key and label, in every process.
    #[must_use]
    pub fn new(key: &KeyHash, label: &str) -> Self {
        let digest = hash(HashPurpose::Downstream, None, &[key.as_bytes(), label.as_bytes()]);
        let mut uuid: [u8; 16] = std::array::from_fn(|at| digest[at]);
        // UUID version 8: free-form, with version and variant bits set.
        uuid[6] = (uuid[6] & 0x0f) | 0x80;
        uuid[8] = (uuid[8] & 0x3f) | 0x80;
        let mut text = String::with_capacity(36);
        for (at, group) in [(0, 4), (4, 6), (6, 8), (8, 10), (10, 16)] {
            if at > 0 {
                text.push('-');
            }
            write_hex(&mut text, &uuid[at..group]).expect("writing to a String cannot fail");
        }
        Self(text)
    }

    /// The text to send, for instance as `Idempotency-Key`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DownstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DownstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DownstreamKey({self})")
    }
}

impl AsRef<str> for DownstreamKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}
