//! What can happen, written with small numbers instead of hashes and nonces.

use std::{fmt, time::Duration};

use semel_core::{Effect, State, Terms, Token};

/// Which key.
pub(super) type KeyIndex = usize;

/// Which nonce; they are numbered as they are first used.
pub(super) type NonceIndex = u32;

/// One thing that happens.
#[derive(Clone)]
pub(super) enum Transition {
    /// A single step.
    One(IndexedStep),
    /// Steps of one kind in one batch.
    Batch(Vec<IndexedStep>),
    /// Cleanup, until nothing is left to do.
    Purge,
    /// Operators look.
    List { state: Option<State>, limit: usize },
    /// Time goes by.
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

/// An owner, or somebody who pretends to be one.
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

/// What an operator looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexedSighting {
    pub(super) nonce: Option<NonceIndex>,
    pub(super) token: Token,
}

/// What an operator decides.
#[derive(Clone, Copy, Debug)]
pub(super) enum IndexedDecision {
    Complete { outcome: u8 },
    Reopen(Effect),
}
