//! The settings of a chaos run.

use std::{path::PathBuf, time::Duration};

use rand::{RngExt, rngs::StdRng};

use super::backend::ServerKind;
use crate::{check::Floor, key::KeyClass};

/// The settings of a chaos run. Made by [`ChaosPlan::new`]; every field may be changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChaosPlan {
    /// The program `semel-crash`.
    pub program: PathBuf,
    /// The store; `{dir}` stands for the folder of the run.
    pub store: String,
    /// The seed of the random choices. It does not fix the schedule of threads and processes.
    pub seed: u64,
    /// The number of faults to inject into the server and its connections, one after the other. Only for stores
    /// whose server the run starts itself: `postgres:`, `redis:`, `valkey:`, `nats:`.
    pub faults: u32,
    /// The number of workers to kill. With zero, one worker lives until it has made [`ChaosPlan::calls`] calls.
    pub kills: u32,
    /// Concurrent workers. More than one needs a store that processes share.
    pub workers: u32,
    /// The keys that a worker uses.
    pub keys: u32,
    /// The number of keys that are replaced by new ones after each kill. With few, a key is used through many kills.
    pub fresh_keys: u32,
    /// Concurrent clients in a worker.
    pub clients: u32,
    /// Engines in a worker.
    pub engines: u32,
    /// Calls of a worker that is not killed.
    pub calls: u64,
    /// How often a worker that is not killed is stopped and continued. With kills, zero means that no worker is.
    pub pauses: u32,
    /// The average length of a pause.
    pub pause: Duration,
    /// The shortest and the longest time under load before a kill.
    pub life: (Duration, Duration),
    /// The least that must happen, or the run proves nothing.
    pub floor: Floor,
}

impl ChaosPlan {
    /// A run over `store` with 200 kills and a random seed.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, store: impl Into<String>) -> Self {
        let plan = Self {
            program: program.into(),
            store: store.into(),
            seed: rand::random(),
            faults: 0,
            kills: 0,
            workers: 1,
            keys: 64,
            fresh_keys: 8,
            clients: 12,
            engines: 2,
            calls: 3000,
            pauses: 5,
            pause: KeyClass::LEASE * 2,
            life: (Duration::from_millis(50), Duration::from_millis(300)),
            floor: Floor::default(),
        };
        plan.kills(200)
    }

    /// Sets the number of kills, and the floor that belongs to it.
    #[must_use]
    pub fn kills(self, kills: u32) -> Self {
        let floor =
            if kills == 0 { Floor::without_kills(self.calls) } else { Floor::with_kills(kills) };
        Self { kills, floor, ..self }
    }

    /// Sets the number of server faults, two concurrent workers, and the floor that belongs to them.
    #[must_use]
    pub fn faults(self, faults: u32) -> Self {
        let possible_faults =
            ServerKind::of(&self.store).map_or_else(Vec::new, ServerKind::possible_faults);
        let each = u64::from(faults) / possible_faults.len().max(1) as u64;
        let floor = Floor::with_server_faults(self.kills, each, |name| {
            possible_faults.iter().filter(|fault| fault.name() == name).count() as u64
        });
        Self { faults, workers: 2, floor, ..self }
    }

    /// Sets the seed, to repeat the random choices of an earlier run.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// True when the run starts the server of its store.
    #[must_use]
    pub fn has_server(&self) -> bool {
        ServerKind::of(&self.store).is_some()
    }

    pub(super) fn life(&self, rng: &mut StdRng) -> Duration {
        rng.random_range(self.life.0..=self.life.1)
    }
}
