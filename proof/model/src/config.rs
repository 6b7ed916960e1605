//! Who takes part, and how often what may go wrong.

use semel_core::OnLostOwner;

use crate::Sight;

/// How many workers want the key.
pub(crate) const WORKERS: usize = 3;

/// A lease is not renewed beyond this many ticks since its claim.
pub(crate) const MAX_RUN: u8 = 4;

/// How long others wait for an abandoned key.
pub(crate) const BACKOFF: u8 = 1;

/// A worker's own policy. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// What it asks for.
    pub fingerprint: u8,
    /// How long it may stay silent.
    pub lease: u8,
    /// What it wants to happen when an owner is lost.
    pub on_lost_owner: OnLostOwner,
    /// How many attempts it wants.
    pub max_attempts: u8,
    /// How long a success is kept.
    pub retention: u8,
    /// How long a failure is kept.
    pub failure_retention: u8,
    /// Whether its work ends in a failure for good.
    pub fails: bool,
}

impl Client {
    /// Runs again when an owner was lost.
    pub const RERUN: Self = Self {
        fingerprint: 1,
        lease: 2,
        on_lost_owner: OnLostOwner::Rerun,
        max_attempts: 2,
        retention: 2,
        failure_retention: 1,
        fails: false,
    };

    /// Waits for an operator when an owner was lost.
    pub const HOLD: Self = Self { on_lost_owner: OnLostOwner::Hold, ..Self::RERUN };

    /// The same, asking for something else.
    #[must_use]
    pub const fn asking_for(self, fingerprint: u8) -> Self {
        Self { fingerprint, ..self }
    }
}

/// What is left of everything that is bounded besides time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Steps that happen while their answer is lost.
    pub lost_replies: u8,
    /// Messages that stay on their way while their sender gives up on the answer.
    pub late_messages: u8,
    /// Workers that forget everything.
    pub crashes: u8,
    /// Decisions of the operator.
    pub decisions: u8,
    /// Erasures.
    pub erasures: u8,
    /// Forgettings.
    pub forgettings: u8,
    /// Records lost by the store.
    pub losses: u8,
}

/// One bounded world.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What it is called in reports.
    pub name: &'static str,
    /// The workers.
    pub clients: [Client; WORKERS],
    /// When time ends.
    pub ticks: u8,
    /// Claim calls of each worker that may be granted.
    pub calls: u8,
    /// How often what may go wrong.
    pub limits: Limits,
    /// Whether cleanup runs.
    pub purge: bool,
    /// What must occur in it, lest it prove nothing.
    pub shows: &'static [Sight],
    /// Stop after so many generated states; `None`: see every state.
    pub at_most: Option<usize>,
}
