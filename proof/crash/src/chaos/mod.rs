//! A chaos run: workers under load are killed and restarted many times, every key is brought to a final state,
//! the records are dumped, and the checker reads the evidence.

mod backend;
mod fault;
mod harness;
mod nemesis;
mod plan;
mod report;

pub use harness::{Harness, RunningWorker};
pub use plan::ChaosPlan;
pub use report::ChaosReport;

use std::{thread, time::Duration, time::Instant};

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    check::{Evidence, check},
    event::Op,
    load::{DumpedRecord, KILL_POINTS},
    stores::rules_of,
};

/// A worker that does not begin its load within this time is a failure of the harness. Longer than the server is
/// ever down.
const START: Duration = Duration::from_secs(60);
/// How long a worker may take to reach its kill point. After that it is killed where it is.
const POINT: Duration = Duration::from_millis(300);
/// How long a worker that is not killed may take.
const CALM: Duration = Duration::from_secs(300);

/// Carries out a plan and reports the findings.
///
/// # Errors
///
/// When the harness itself fails: a process does not start, or ends without having been killed.
pub fn chaos_run(plan: &ChaosPlan) -> Result<ChaosReport> {
    let started = Instant::now();
    let mut harness = Harness::start(plan)?;
    let evidence = match carry_out(plan, &mut harness) {
        Ok(evidence) => evidence,
        Err(error) => {
            let seed = format!("chaos run over {}, seed {}", plan.store, plan.seed);
            return Err(error.context(harness.keep()).context(seed));
        }
    };
    let findings = check(&evidence);
    let mut report =
        ChaosReport { plan: plan.clone(), findings, folder: None, elapsed: started.elapsed() };
    if !report.passed() {
        let folder = harness.keep_folder();
        evidence.keep_dump(&folder)?;
        std::fs::write(folder.join("report.txt"), report.to_string())?;
        report.folder = Some(folder);
    }
    Ok(report)
}

fn carry_out(plan: &ChaosPlan, harness: &mut Harness) -> Result<Evidence> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let dump = if plan.kills == 0 {
        run_without_kills(plan, harness, &mut rng)?
    } else {
        let keys = kill_repeatedly(plan, harness, &mut rng)?;
        drain(plan, harness, keys)?;
        harness.dump(keys)?
    };
    let (events, ledger) = harness.evidence()?;
    let rules = rules_of(&plan.store, plan.floor);
    Ok(Evidence { events, ledger, dump, dumped_at: crate::mono(), rules })
}

/// Runs one worker that is paused now and then, and not killed. It drains its keys and dumps its store itself, because
/// a memory store ends with it.
fn run_without_kills(
    plan: &ChaosPlan,
    harness: &mut Harness,
    rng: &mut StdRng,
) -> Result<Vec<DumpedRecord>> {
    let mut worker = harness.worker(plan, rng.random(), |job| {
        job.calls = Some(plan.calls);
        (job.drain, job.dump) = (true, true);
    })?;
    worker.await_event(Op::Ready, START)?;
    for _ in 0..plan.pauses {
        thread::sleep(plan.life(rng));
        pause(plan, &mut worker, rng)?;
    }
    let dump = worker.gather(Op::Dump, CALM)?;
    harness.end(worker)?;
    Ok(dump.into_iter().map(|it| DumpedRecord { t_mono: it.t_mono, record: it.detail }).collect())
}

/// Kills and replaces workers in random order until there were enough kills and all server faults. Returns the number
/// of keys used.
fn kill_repeatedly(plan: &ChaosPlan, harness: &mut Harness, rng: &mut StdRng) -> Result<u32> {
    let (mut workers, mut killed) = (Vec::new(), 0);
    let nemesis = harness.nemesis(plan);
    while killed < plan.kills || nemesis.as_ref().is_some_and(|it| !it.is_done()) {
        let first_key = killed * plan.fresh_keys;
        while workers.len() < plan.workers as usize {
            workers.push(start_worker_to_kill(plan, harness, rng, first_key)?);
        }
        let turn = rng.random_range(0..workers.len());
        let (worker, kill_time) = workers.swap_remove(turn);
        kill_when_due(plan, harness, rng, worker, kill_time)?;
        killed += 1;
    }
    for (worker, _) in workers {
        harness.kill(worker)?;
    }
    nemesis.map_or(Ok(()), nemesis::Nemesis::end)?;
    Ok((killed - 1) * plan.fresh_keys + plan.keys)
}

/// When a worker is killed.
enum KillTime {
    After(Duration),
    AtPoint,
    AfterPause(Duration),
}

fn start_worker_to_kill(
    plan: &ChaosPlan,
    harness: &mut Harness,
    rng: &mut StdRng,
    first_key: u32,
) -> Result<(RunningWorker, KillTime)> {
    let kill_time = match rng.random_range(0..100) {
        0..30 => KillTime::AtPoint,
        30..35 if plan.pauses > 0 => KillTime::AfterPause(plan.life(rng)),
        _ => KillTime::After(plan.life(rng)),
    };
    let stop_at = matches!(kill_time, KillTime::AtPoint).then(|| {
        let point = KILL_POINTS[rng.random_range(0..KILL_POINTS.len())];
        format!("{point}:{}", rng.random_range(1..6)).parse().expect("a kill point")
    });
    let worker = harness.worker(plan, rng.random(), |job| {
        job.first_key = first_key;
        job.stop_at = stop_at;
    })?;
    Ok((worker, kill_time))
}

fn kill_when_due(
    plan: &ChaosPlan,
    harness: &mut Harness,
    rng: &mut StdRng,
    mut worker: RunningWorker,
    kill_time: KillTime,
) -> Result<()> {
    worker.await_event(Op::Ready, START)?;
    match kill_time {
        KillTime::After(life) => thread::sleep(life),
        KillTime::AfterPause(life) => {
            thread::sleep(life / 2);
            pause(plan, &mut worker, rng)?;
            thread::sleep(life / 2);
        }
        KillTime::AtPoint => drop(worker.await_event(Op::Point, POINT)),
    }
    harness.kill(worker)
}

/// Stops the worker for longer than a lease, so that it loses its keys.
fn pause(plan: &ChaosPlan, worker: &mut RunningWorker, rng: &mut StdRng) -> Result<()> {
    worker.process.pause()?;
    thread::sleep(plan.pause.mul_f64(rng.random_range(0.5..1.5)));
    worker.process.resume()
}

/// Brings every key to a final state, in a worker that is not killed.
fn drain(plan: &ChaosPlan, harness: &mut Harness, keys: u32) -> Result<()> {
    let mut worker = harness.worker(plan, 0, |job| {
        job.keys = keys;
        job.drain = true;
    })?;
    worker.await_event(Op::Done, CALM).context("draining the keys")?;
    harness.end(worker)
}
