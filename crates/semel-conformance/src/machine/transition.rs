//! The transitions of a sequence, with small numbers instead of hashes and nonces.

use std::{fmt, time::Duration};

use semel_core::{Effect, State, Terms, Token};

/// The index of a key.
pub(super) type KeyIndex = usize;

/// The index of a nonce, in the order of first use.
pub(super) type NonceIndex = u32;

/// One transition of a sequence.
#[derive(Clone)]
pub(super) enum Transition {
    /// A single step.
    One(IndexedStep),
    /// Steps of one kind in one batch.
    Batch(Vec<IndexedStep>),
    /// Purges until nothing is left.
    Purge,
    /// An operator lists records.
    List { state: Option<State>, limit: usize },
    /// Time passes.
    Pass(Duration),
}

impl fmt::Debug for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(step) => step.fmt(f),
            Self::Batch(steps) => write!(f, "Batch {steps:?}"),
            Self::Purge => f.write_str("Purge"),
            Self::List { state, limit } => write!(f, "List {{ state: {state:?}, limit: {limit} }}"),
            Self::Pass(span) => write!(f, "Pass {span:?}"),
        }
    }
}

/// One step on one key.
#[derive(Clone, Debug)]
pub(super) enum IndexedStep {
    Claim { key: KeyIndex, nonce: NonceIndex, fingerprint: u8, labels: bool, terms: Terms },
    Renew { by: IndexedOwner, max_run: Duration },
    Complete { by: IndexedOwner, outcome: u8 },
    Release { by: IndexedOwner, effect: Effect },
    Abandon { by: IndexedOwner, backoff: Duration },
    Resolve { key: KeyIndex, seen: IndexedSighting, decision: IndexedDecision },
    Erase { key: KeyIndex },
    Forget { key: KeyIndex },
}

/// A current, former or made-up owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexedOwner {
    pub(super) key: KeyIndex,
    pub(super) nonce: NonceIndex,
    pub(super) token: Token,
}

impl fmt::Debug for IndexedOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} nonce {} token {}", self.key, self.nonce, self.token)
    }
}

/// The nonce and token that an operator saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexedSighting {
    pub(super) nonce: Option<NonceIndex>,
    pub(super) token: Token,
}

/// The decision of an operator.
#[derive(Clone, Copy, Debug)]
pub(super) enum IndexedDecision {
    Complete { outcome: u8 },
    Reopen(Effect),
}
