//! The configurations: small ones for every run of the tests, large ones for `cargo xtask model`.

use crate::{Client, Config, Limits, Sight};

const NONE: Limits = Limits {
    lost_replies: 0,
    late_messages: 0,
    crashes: 0,
    decisions: 0,
    erasures: 0,
    forgettings: 0,
    losses: 0,
};

const RERUN: [Client; 3] = [Client::RERUN, Client::RERUN, Client::RERUN.asking_for(2)];

const HOLD: [Client; 3] = [Client::HOLD, Client::HOLD, Client::HOLD.asking_for(2)];

/// One of them has a single attempt.
const FRUGAL: [Client; 3] =
    [Client::RERUN, Client { max_attempts: 1, ..Client::RERUN }, Client::RERUN.asking_for(2)];

/// They differ in lease, cap and what to do about lost owners; one fails, one asks for something else.
const MIXED: [Client; 3] = [
    Client { lease: 1, max_attempts: 1, ..Client::HOLD },
    Client { lease: 3, max_attempts: 3, fails: true, ..Client::RERUN },
    Client::RERUN.asking_for(2),
];

/// Owners are lost, answers are lost, an operator decides.
const LOST: Limits = Limits { lost_replies: 1, crashes: 1, decisions: 1, ..NONE };

/// Messages come late, an operator decides.
const LATE: Limits = Limits { late_messages: 1, decisions: 1, ..NONE };

/// Messages come late, an operator clears up.
const CLEARED: Limits = Limits { late_messages: 1, erasures: 1, forgettings: 1, ..NONE };

/// Messages come late, the store forgets.
const FORGETFUL: Limits = Limits { late_messages: 1, losses: 1, ..NONE };

const fn config(name: &'static str, clients: [Client; 3], ticks: u8, limits: Limits) -> Config {
    let shows = &[Sight::Recorded, Sight::Taken, Sight::SecondLife];
    Config { name, clients, ticks, calls: 1, limits, purge: false, shows, at_most: None }
}

impl Config {
    /// Everybody runs again what was lost.
    pub const RERUN: Self = Self {
        shows: &[Sight::Recorded, Sight::Taken, Sight::Crowd, Sight::Unanswered, Sight::Dead],
        ..config("rerun", RERUN, 5, LOST)
    };

    /// Nobody does; cleanup runs.
    pub const HOLD: Self = Self {
        purge: true,
        shows: &[Sight::Recorded, Sight::Unknown, Sight::Taken, Sight::Unanswered],
        ..config("hold", HOLD, 5, LOST)
    };

    /// No two workers have the same lease or cap.
    pub const MIXED: Self = Self {
        shows: &[Sight::Recorded, Sight::Unknown, Sight::Abandoned, Sight::Dirty, Sight::Taken],
        ..config("mixed", MIXED, 4, LATE)
    };

    /// Each worker comes twice.
    pub const TWICE: Self = Self {
        calls: 2,
        limits: Limits { decisions: 1, ..NONE },
        shows: &[Sight::Recorded, Sight::Dead, Sight::Crowd, Sight::Dirty, Sight::SecondLife],
        ..config("twice", RERUN, 3, NONE)
    };

    /// Keys are erased and forgotten.
    pub const CLEARED: Self = Self {
        purge: true,
        shows: &[Sight::Recorded, Sight::Erased, Sight::Taken, Sight::SecondLife],
        ..config("cleared", HOLD, 3, CLEARED)
    };

    /// The store loses the record.
    pub const FORGETFUL: Self = config("forgetful", FRUGAL, 3, FORGETFUL);

    /// What every run of the tests checks, to the last state.
    pub const SMALL: &[Self] =
        &[Self::RERUN, Self::HOLD, Self::MIXED, Self::TWICE, Self::CLEARED, Self::FORGETFUL];

    /// What `cargo xtask model` checks.
    pub const LARGE: &[Self] = &[
        config("rerun, late", RERUN, 5, LATE),
        Self { purge: true, ..config("rerun, lost, purge", RERUN, 6, LOST) },
        Self { purge: true, ..config("hold, lost, purge", HOLD, 7, LOST) },
        config("frugal, late", FRUGAL, 5, LATE),
        config("hold, late", HOLD, 5, LATE),
        config("mixed, lost", MIXED, 6, LOST),
        config("mixed, late", MIXED, 5, LATE),
        Self { calls: 2, ..config("mixed, twice", MIXED, 4, Limits { decisions: 1, ..NONE }) },
        Self { calls: 2, ..config("hold, twice", HOLD, 4, Limits { decisions: 2, ..NONE }) },
        config("rerun, cleared", RERUN, 4, CLEARED),
        config("hold, cleared", HOLD, 4, CLEARED),
        config("mixed, cleared", MIXED, 4, CLEARED),
        config("rerun, forgetful", RERUN, 4, FORGETFUL),
        config("hold, forgetful", HOLD, 4, FORGETFUL),
        config("mixed, forgetful", MIXED, 4, FORGETFUL),
        Self { at_most: Some(40_000_000), ..config("mixed, everything", MIXED, 5, EVERYTHING) },
    ];
}

/// Every fault but the loss of the record, once; late messages twice.
const EVERYTHING: Limits = Limits {
    lost_replies: 1,
    late_messages: 2,
    crashes: 1,
    decisions: 1,
    erasures: 1,
    forgettings: 1,
    losses: 0,
};
