//! Claim and complete, by a plain map and by the memory store, in turns.
//!
//! Twice: each fill in a new process with fresh memory, and repeatedly in one process, where the allocator recycles the
//! memory of the round before.

use std::{process::Command, time::Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use semel_bench::{
    load::{claim_and_complete, with_capacity},
    report::{line, spread},
};
use semel_core::LabelPolicy;

use super::map::PlainMap;

/// The side that claims and completes.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum MemorySide {
    Map,
    Store,
    Labelled,
}

pub(super) fn run(keys: u64, repeats: usize) -> Result<()> {
    let fresh = rounds(repeats, |side| side.fill_afresh(keys))?;
    show("fresh memory", &fresh, Some(75.0));
    let recycled = rounds(repeats, |side| side.fill(keys))?;
    show("recycled memory", &recycled, None);
    Ok(())
}

impl MemorySide {
    /// Fills a new map or store. Returns millions of steps per second.
    pub(super) fn fill(self, keys: u64) -> Result<f64> {
        let store = |labels| {
            let memory = with_capacity(keys);
            rate(keys, |i| claim_and_complete(&memory, i, labels))
        };
        match self {
            Self::Map => {
                let plain = PlainMap::default();
                rate(keys, |i| plain.claim_and_complete(i))
            }
            Self::Store => store(LabelPolicy::Redact),
            Self::Labelled => store(LabelPolicy::Keep),
        }
    }

    fn fill_afresh(self, keys: u64) -> Result<f64> {
        let side = self.to_possible_value().context("every side has a name")?;
        let mut fresh = Command::new(std::env::current_exe()?);
        fresh.args(["memory", "--keys", &keys.to_string(), "--side", side.get_name()]);
        let output = fresh.output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    }
}

fn rounds(repeats: usize, fill: impl Fn(MemorySide) -> Result<f64>) -> Result<Vec<[f64; 3]>> {
    let round =
        |_| Ok([fill(MemorySide::Map)?, fill(MemorySide::Store)?, fill(MemorySide::Labelled)?]);
    (0..repeats).map(round).collect()
}

/// Prints rates and ratios. A ratio is taken within a round, and the median of rounds is shown. The map keeps no
/// labels, so the goal is for a store that keeps none either.
fn show(memory: &str, rounds: &[[f64; 3]], goal: Option<f64>) {
    println!("claim+complete, {memory}");
    for (side, what) in ["plain map", "memory store", "memory store, labels"].iter().enumerate() {
        let mut rates: Vec<f64> = rounds.iter().map(|round| round[side]).collect();
        let mut ratios: Vec<f64> =
            rounds.iter().map(|round| round[side] / round[0] * 100.0).collect();
        let ((mid, low, high), (ratio, least, most)) = (spread(&mut rates), spread(&mut ratios));
        let rate = format!("{mid:.2} M/s ({low:.2}–{high:.2})");
        let figure = match side {
            0 => rate,
            _ => format!("{rate}, {ratio:.0} % ({least:.0}–{most:.0})"),
        };
        let goal = goal.filter(|_| side == 1);
        let text = goal.map_or_else(String::new, |goal| format!("≥ {goal} %"));
        line(&format!("  {what}"), &figure, &text, goal.map(|goal| ratio >= goal));
    }
}

fn rate(keys: u64, op: impl Fn(u64) + Sync) -> Result<f64> {
    let threads = std::thread::available_parallelism()?.get();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let op = &op;
            scope.spawn(move || (thread..keys).step_by(threads).for_each(op));
        }
    });
    Ok(2.0 * keys as f64 / started.elapsed().as_secs_f64() / 1e6)
}
