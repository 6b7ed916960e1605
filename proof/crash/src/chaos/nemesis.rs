//! Blow after blow, each once the store has recovered from the one before.

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
    backend::{Backend, Kind},
    fault::Strike,
};
use crate::history::History;

/// Claims answered after a blow: then the store has recovered.
const RECOVERED: u64 = 30;
/// What has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// Works on a thread of its own, beside the kills. Dropped, it ends after the blow it is at.
#[derive(Debug)]
pub(super) struct Nemesis {
    thread: Option<JoinHandle<Result<()>>>,
    called_off: Arc<AtomicBool>,
}

impl Nemesis {
    pub(super) fn start(backend: Arc<Backend>, history: History, blows: u32, seed: u64) -> Self {
        let called_off = Arc::new(AtomicBool::new(false));
        let stop = called_off.clone();
        let thread = thread::spawn(move || strike(&backend, &history, blows, seed, &stop));
        Self { thread: Some(thread), called_off }
    }

    pub(super) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// How it went.
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
        self.called_off.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The blows of a storm in their order. Every kind has its turn before any has another.
pub(super) fn schedule(kind: Kind, blows: u32, rng: &mut StdRng) -> Vec<Strike> {
    let mut schedule = Vec::new();
    while schedule.len() < blows as usize {
        let mut round = kind.strikes();
        round.shuffle(rng);
        schedule.extend(round);
    }
    schedule.truncate(blows as usize);
    schedule
}

fn strike(
    backend: &Backend,
    history: &History,
    blows: u32,
    seed: u64,
    called_off: &AtomicBool,
) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut last = "the start".to_owned();
    for strike in schedule(backend.kind, blows, &mut rng) {
        recover(history, &last, called_off)?;
        if called_off.load(Relaxed) {
            return Ok(());
        }
        strike.fall(backend, &mut rng, history)?;
        last = strike.name();
    }
    recover(history, &last, called_off)?;
    // It takes several calls, and most of those who begin one are killed.
    await_or_fail(called_off, || history.purged() > 0, || "nobody has cleaned up".to_owned())
}

fn recover(history: &History, last: &str, called_off: &AtomicBool) -> Result<()> {
    let goal = history.answered() + RECOVERED;
    let trouble = || format!("after {last}, no store has answered");
    await_or_fail(called_off, || history.answered() >= goal, trouble)
}

/// Waits until something `has_happened`, or the whole storm is called off.
fn await_or_fail(
    called_off: &AtomicBool,
    has_happened: impl Fn() -> bool,
    trouble: impl Fn() -> String,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !has_happened() && !called_off.load(Relaxed) {
        if Instant::now() >= deadline {
            bail!("{} for {} s", trouble(), PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
