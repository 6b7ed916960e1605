//! The workers of a model, and how often each fault may happen.

use semel_core::OnLostOwner;

use crate::Situation;

/// The number of workers.
pub(crate) const WORKERS: usize = 3;

/// A lease is not renewed after this many ticks since its claim.
pub(crate) const MAX_RUN: u8 = 4;

/// How long an abandoned key stays busy.
pub(crate) const BACKOFF: u8 = 1;

/// The policy of one worker. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct ModelClient {
    /// The fingerprint of its request.
    pub fingerprint: u8,
    /// Its lease.
    pub lease: u8,
    /// Its policy for lost owners.
    pub on_lost_owner: OnLostOwner,
    /// Its limit of attempts.
    pub max_attempts: u8,
    /// The retention of a success.
    pub retention: u8,
    /// The retention of a failure.
    pub failure_retention: u8,
    /// Whether its work ends in a final failure.
    pub fails: bool,
}

impl ModelClient {
    /// The work runs again when an owner is lost.
    pub const RERUN: Self = Self {
        fingerprint: 1,
        lease: 2,
        on_lost_owner: OnLostOwner::Rerun,
        max_attempts: 2,
        retention: 2,
        failure_retention: 1,
        fails: false,
    };

    /// The key waits for an operator when an owner is lost.
    pub const HOLD: Self = Self { on_lost_owner: OnLostOwner::Hold, ..Self::RERUN };

    /// The same policy with another fingerprint.
    #[must_use]
    pub const fn with_fingerprint(self, fingerprint: u8) -> Self {
        Self { fingerprint, ..self }
    }
}

/// How often each fault and each operator's step may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FaultLimits {
    /// Steps whose reply is lost.
    pub lost_replies: u8,
    /// Messages that arrive late, after their sender gave up.
    pub late_messages: u8,
    /// Workers that crash and lose their memory.
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

/// The configuration of a model.
#[derive(Clone, Copy, Debug)]
pub struct ModelConfig {
    /// Its name in reports.
    pub name: &'static str,
    /// The workers.
    pub clients: [ModelClient; WORKERS],
    /// The number of ticks.
    pub ticks: u8,
    /// The number of claims that each worker may be granted.
    pub calls: u8,
    /// How often each fault may happen.
    pub limits: FaultLimits,
    /// Whether the store purges.
    pub purge: bool,
    /// The situations that must occur, because a run without them proves nothing.
    pub shows: &'static [Situation],
    /// Stop after this many generated states. `None`: explore every state.
    pub at_most: Option<usize>,
}
