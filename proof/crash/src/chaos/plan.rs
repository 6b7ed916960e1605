//! What a storm does.

use std::{path::PathBuf, time::Duration};

use rand::{RngExt, rngs::StdRng};

use super::backend::Kind;
use crate::{check::Floor, key::Class};

/// What a storm does. Made by [`Plan::new`]; every field may be changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The program `semel-crash`.
    pub program: PathBuf,
    /// The store; `{dir}` stands for the folder of the run.
    pub store: String,
    /// Where the dice start. What processes do with it is up to the scheduler.
    pub seed: u64,
    /// What happens to the server and to the way there: one thing after the other. Only where the storm
    /// has a server of its own: `postgres:`, `redis:`, `valkey:`, `nats:`.
    pub blows: u32,
    /// SIGKILLs. Zero: one worker lives until it has made [`Plan::calls`] calls.
    pub kills: u32,
    /// Workers at the same time. More than one needs a store that processes share.
    pub workers: u32,
    /// Keys that a worker uses.
    pub keys: u32,
    /// Keys that each kill replaces by new ones; with few, a key sees many kills.
    pub fresh_keys: u32,
    /// Callers at the same time in a worker.
    pub clients: u32,
    /// Engines in a worker.
    pub engines: u32,
    /// Calls of a worker that is not killed.
    pub calls: u64,
    /// How often a worker that is not killed is stopped and continued. With kills: zero for never.
    pub pauses: u32,
    /// How long a pause is, about.
    pub pause: Duration,
    /// The shortest life under load, and the longest.
    pub life: (Duration, Duration),
    /// What must have happened, or the run proves nothing.
    pub floor: Floor,
}

impl Plan {
    /// A storm over `store` with 200 kills and a seed of its own.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, store: impl Into<String>) -> Self {
        let plan = Self {
            program: program.into(),
            store: store.into(),
            seed: rand::random(),
            blows: 0,
            kills: 0,
            workers: 1,
            keys: 64,
            fresh_keys: 8,
            clients: 12,
            engines: 2,
            calls: 3000,
            pauses: 5,
            pause: Class::LEASE * 2,
            life: (Duration::from_millis(50), Duration::from_millis(300)),
            floor: Floor::default(),
        };
        plan.kills(200)
    }

    /// Sets the kills, and what must have happened by then.
    #[must_use]
    pub fn kills(self, kills: u32) -> Self {
        let floor = if kills == 0 { Floor::calm(self.calls) } else { Floor::after(kills) };
        Self { kills, floor, ..self }
    }

    /// Sets the blows to the server, with two workers over it, and what must have happened by then.
    #[must_use]
    pub fn blows(self, blows: u32) -> Self {
        let strikes = Kind::of(&self.store).map_or_else(Vec::new, Kind::strikes);
        let each = u64::from(blows) / strikes.len().max(1) as u64;
        let floor = Floor::through(self.kills, each, |name| {
            strikes.iter().filter(|strike| strike.name() == name).count() as u64
        });
        Self { blows, workers: 2, floor, ..self }
    }

    /// Repeats the dice of an earlier storm.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// True when the storm starts a server for its store.
    #[must_use]
    pub fn has_server(&self) -> bool {
        Kind::of(&self.store).is_some()
    }

    pub(super) fn life(&self, rng: &mut StdRng) -> Duration {
        rng.random_range(self.life.0..=self.life.1)
    }
}
