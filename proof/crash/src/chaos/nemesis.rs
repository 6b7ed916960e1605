//! The nemesis injects faults one by one, each after the store has recovered from the one before.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};

use super::{
    backend::{Backend, ServerKind},
    fault::PlannedFault,
};
use crate::history::History;

/// The store has recovered when this many claims were answered after a fault.
const RECOVERED: u64 = 30;
/// A store that takes longer to recover fails the run.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs on a thread of its own while workers are killed. Dropped, it stops after the current fault.
#[derive(Debug)]
pub(super) struct Nemesis {
    thread: Option<JoinHandle<Result<()>>>,
    stopped: Arc<AtomicBool>,
}

impl Nemesis {
    pub(super) fn start(backend: Arc<Backend>, history: History, faults: u32, seed: u64) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        let thread = thread::spawn(move || inject_all(&backend, &history, faults, seed, &stop));
        Self { thread: Some(thread), stopped }
    }

    pub(super) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end, and returns its result.
    pub(super) fn end(mut self) -> Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => bail!("the nemesis panicked"),
            None => Ok(()),
        }
    }
}

impl Drop for Nemesis {
    fn drop(&mut self) {
        self.stopped.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The faults of a run in their order. No kind is repeated before every other kind was used.
pub(super) fn schedule(kind: ServerKind, faults: u32, rng: &mut StdRng) -> Vec<PlannedFault> {
    let mut schedule = Vec::new();
    while schedule.len() < faults as usize {
        let mut round = kind.possible_faults();
        round.shuffle(rng);
        schedule.extend(round);
    }
    schedule.truncate(faults as usize);
    schedule
}

fn inject_all(
    backend: &Backend,
    history: &History,
    faults: u32,
    seed: u64,
    stopped: &AtomicBool,
) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut last = "the start".to_owned();
    for fault in schedule(backend.kind, faults, &mut rng) {
        await_recovery(history, &last, stopped)?;
        if stopped.load(Relaxed) {
            return Ok(());
        }
        fault.inject(backend, &mut rng, history)?;
        last = fault.name();
    }
    await_recovery(history, &last, stopped)?;
    // A purge takes several calls, and most workers are killed before the last of them.
    await_or_fail(stopped, || history.purged() > 0, || "no purge has ended".to_owned())
}

fn await_recovery(history: &History, last: &str, stopped: &AtomicBool) -> Result<()> {
    let goal = history.answered() + RECOVERED;
    let trouble = || format!("after {last}, no store has answered");
    await_or_fail(stopped, || history.answered() >= goal, trouble)
}

/// Waits until `has_happened` returns true, or the run is stopped.
fn await_or_fail(
    stopped: &AtomicBool,
    has_happened: impl Fn() -> bool,
    trouble: impl Fn() -> String,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !has_happened() && !stopped.load(Relaxed) {
        if Instant::now() >= deadline {
            bail!("{} for {} s", trouble(), PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
