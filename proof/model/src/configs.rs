//! The configurations: small ones for every run of the tests, large ones for `cargo xtask model`.

use crate::{FaultLimits, ModelClient, ModelConfig, Situation};

const NONE: FaultLimits = FaultLimits {
    lost_replies: 0,
    late_messages: 0,
    crashes: 0,
    decisions: 0,
    erasures: 0,
    forgettings: 0,
    losses: 0,
};

const RERUN: [ModelClient; 3] =
    [ModelClient::RERUN, ModelClient::RERUN, ModelClient::RERUN.with_fingerprint(2)];

const HOLD: [ModelClient; 3] =
    [ModelClient::HOLD, ModelClient::HOLD, ModelClient::HOLD.with_fingerprint(2)];

/// One worker has a single attempt.
const FRUGAL: [ModelClient; 3] = [
    ModelClient::RERUN,
    ModelClient { max_attempts: 1, ..ModelClient::RERUN },
    ModelClient::RERUN.with_fingerprint(2),
];

/// The workers differ in lease, limit of attempts and policy for lost owners. One fails, one has another fingerprint.
const MIXED: [ModelClient; 3] = [
    ModelClient { lease: 1, max_attempts: 1, ..ModelClient::HOLD },
    ModelClient { lease: 3, max_attempts: 3, fails: true, ..ModelClient::RERUN },
    ModelClient::RERUN.with_fingerprint(2),
];

/// Workers crash, replies are lost, an operator decides.
const LOST: FaultLimits = FaultLimits { lost_replies: 1, crashes: 1, decisions: 1, ..NONE };

/// Messages arrive late, an operator decides.
const LATE: FaultLimits = FaultLimits { late_messages: 1, decisions: 1, ..NONE };

/// Messages arrive late, an operator erases and forgets.
const CLEARED: FaultLimits = FaultLimits { late_messages: 1, erasures: 1, forgettings: 1, ..NONE };

/// Messages arrive late, the store loses the record.
const FORGETFUL: FaultLimits = FaultLimits { late_messages: 1, losses: 1, ..NONE };

const fn config(
    name: &'static str,
    clients: [ModelClient; 3],
    ticks: u8,
    limits: FaultLimits,
) -> ModelConfig {
    let shows = &[Situation::Recorded, Situation::Superseded, Situation::SecondLife];
    ModelConfig { name, clients, ticks, calls: 1, limits, purge: false, shows, at_most: None }
}

impl ModelConfig {
    /// Every worker reruns after a lost owner.
    pub const RERUN: Self = Self {
        shows: &[
            Situation::Recorded,
            Situation::Superseded,
            Situation::TwoRuns,
            Situation::Unanswered,
            Situation::Dead,
        ],
        ..config("rerun", RERUN, 5, LOST)
    };

    /// Every worker holds after a lost owner; the store purges.
    pub const HOLD: Self = Self {
        purge: true,
        shows: &[
            Situation::Recorded,
            Situation::Unknown,
            Situation::Superseded,
            Situation::Unanswered,
        ],
        ..config("hold", HOLD, 5, LOST)
    };

    /// No two workers have the same lease or limit of attempts.
    pub const MIXED: Self = Self {
        shows: &[
            Situation::Recorded,
            Situation::Unknown,
            Situation::Abandoned,
            Situation::Dirty,
            Situation::Superseded,
        ],
        ..config("mixed", MIXED, 4, LATE)
    };

    /// Each worker claims twice.
    pub const TWICE: Self = Self {
        calls: 2,
        limits: FaultLimits { decisions: 1, ..NONE },
        shows: &[
            Situation::Recorded,
            Situation::Dead,
            Situation::TwoRuns,
            Situation::Dirty,
            Situation::SecondLife,
        ],
        ..config("twice", RERUN, 3, NONE)
    };

    /// Keys are erased and forgotten.
    pub const CLEARED: Self = Self {
        purge: true,
        shows: &[
            Situation::Recorded,
            Situation::Erased,
            Situation::Superseded,
            Situation::SecondLife,
        ],
        ..config("cleared", HOLD, 3, CLEARED)
    };

    /// The store loses the record.
    pub const FORGETFUL: Self = config("forgetful", FRUGAL, 3, FORGETFUL);

    /// Two owners are lost, one after the other.
    pub const LAPSED: Self = Self {
        calls: 2,
        shows: &[Situation::Contested, Situation::TwoRuns, Situation::Dead],
        ..config("lapsed", RERUN, 6, NONE)
    };

    /// What every run of the tests explores, to the last state.
    pub const SMALL: &[Self] = &[
        Self::RERUN,
        Self::HOLD,
        Self::MIXED,
        Self::TWICE,
        Self::CLEARED,
        Self::FORGETFUL,
        Self::LAPSED,
    ];

    /// What `cargo xtask model` explores besides.
    pub const LARGE: &[Self] = &[
        config("rerun, late", RERUN, 5, LATE),
        Self { purge: true, ..config("rerun, lost, purge", RERUN, 6, LOST) },
        Self { purge: true, ..config("hold, lost, purge", HOLD, 7, LOST) },
        config("frugal, late", FRUGAL, 5, LATE),
        config("hold, late", HOLD, 5, LATE),
        config("mixed, lost", MIXED, 6, LOST),
        config("mixed, late", MIXED, 5, LATE),
        Self { calls: 2, ..config("mixed, twice", MIXED, 4, FaultLimits { decisions: 1, ..NONE }) },
        Self { calls: 2, ..config("hold, twice", HOLD, 4, FaultLimits { decisions: 2, ..NONE }) },
        config("rerun, cleared", RERUN, 4, CLEARED),
        config("hold, cleared", HOLD, 4, CLEARED),
        config("mixed, cleared", MIXED, 4, CLEARED),
        config("rerun, forgetful", RERUN, 4, FORGETFUL),
        config("hold, forgetful", HOLD, 4, FORGETFUL),
        config("mixed, forgetful", MIXED, 4, FORGETFUL),
        Self { at_most: Some(40_000_000), ..config("mixed, everything", MIXED, 5, EVERYTHING) },
    ];
}

/// Every fault once, except the loss of the record; late messages twice.
const EVERYTHING: FaultLimits = FaultLimits {
    lost_replies: 1,
    late_messages: 2,
    crashes: 1,
    decisions: 1,
    erasures: 1,
    forgettings: 1,
    losses: 0,
};
