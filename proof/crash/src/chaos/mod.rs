//! The storm: load, kill, restart, many times; then calm, a dump, and the checker.

mod backend;
mod fault;
mod harness;
mod nemesis;
mod plan;
mod report;

pub use harness::{Worker, World};
pub use plan::Plan;
pub use report::Report;

use std::{thread, time::Duration, time::Instant};

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    check::{Evidence, check},
    event::Op,
    load::{Dumped, POINTS},
    stores::rules_of,
};

/// A worker that has not begun after this long is a failure of the harness, not of the store, even when
/// its server is away for a while.
const START: Duration = Duration::from_secs(60);
/// A point that is not reached by then will not be waited for.
const POINT: Duration = Duration::from_millis(300);
/// The longest that calm work and settling may take.
const CALM: Duration = Duration::from_secs(300);

/// Carries out a plan and says what it found.
///
/// # Errors
///
/// When the harness itself fails: a program does not start, or ends when nobody killed it.
pub fn storm(plan: &Plan) -> Result<Report> {
    let started = Instant::now();
    let mut world = World::start(plan)?;
    let evidence = match rage(plan, &mut world) {
        Ok(evidence) => evidence,
        Err(error) => {
            let seed = format!("storm over {}, seed {}", plan.store, plan.seed);
            return Err(error.context(world.keep()).context(seed));
        }
    };
    let findings = check(&evidence);
    let mut report =
        Report { plan: plan.clone(), findings, folder: None, elapsed: started.elapsed() };
    if !report.passed() {
        let folder = world.keep_folder();
        evidence.keep_dump(&folder)?;
        std::fs::write(folder.join("report.txt"), report.to_string())?;
        report.folder = Some(folder);
    }
    Ok(report)
}

fn rage(plan: &Plan, world: &mut World) -> Result<Evidence> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let dump = if plan.kills == 0 {
        calm(plan, world, &mut rng)?
    } else {
        let keys = kill_all(plan, world, &mut rng)?;
        settle(plan, world, keys)?;
        world.dump(keys)?
    };
    let (events, ledger) = world.evidence()?;
    let rules = rules_of(&plan.store, plan.floor);
    Ok(Evidence { events, ledger, dump, dumped_at: crate::mono(), rules })
}

/// A life that ends by itself, paused now and then. It settles and shows its store before it goes: not
/// every store would be there afterwards.
fn calm(plan: &Plan, world: &mut World, rng: &mut StdRng) -> Result<Vec<Dumped>> {
    let mut worker = world.worker(plan, rng.random(), |job| {
        job.calls = Some(plan.calls);
        (job.settle, job.dump) = (true, true);
    })?;
    worker.await_news(Op::Ready, START)?;
    for _ in 0..plan.pauses {
        thread::sleep(plan.life(rng));
        pause(plan, &mut worker, rng)?;
    }
    let dump = worker.gather(Op::Dump, CALM)?;
    world.end(worker)?;
    Ok(dump.into_iter().map(|it| Dumped { t_mono: it.t_mono, record: it.detail }).collect())
}

/// Every worker has a fate; the one whose turn it is meets it and is replaced. Beside that, the server
/// has its own: kills go on until that is met too.
fn kill_all(plan: &Plan, world: &mut World, rng: &mut StdRng) -> Result<u32> {
    let (mut workers, mut killed) = (Vec::new(), 0);
    let nemesis = world.nemesis(plan);
    while killed < plan.kills || nemesis.as_ref().is_some_and(|it| !it.is_done()) {
        let first_key = killed * plan.fresh_keys;
        while workers.len() < plan.workers as usize {
            workers.push(doomed(plan, world, rng, first_key)?);
        }
        let turn = rng.random_range(0..workers.len());
        let (worker, fate) = workers.swap_remove(turn);
        meet(plan, world, rng, worker, fate)?;
        killed += 1;
    }
    for (worker, _) in workers {
        world.kill(worker)?;
    }
    nemesis.map_or(Ok(()), nemesis::Nemesis::end)?;
    Ok((killed - 1) * plan.fresh_keys + plan.keys)
}

enum Fate {
    After(Duration),
    AtPoint,
    AfterPause(Duration),
}

fn doomed(
    plan: &Plan,
    world: &mut World,
    rng: &mut StdRng,
    first_key: u32,
) -> Result<(Worker, Fate)> {
    let fate = match rng.random_range(0..100) {
        0..30 => Fate::AtPoint,
        30..35 if plan.pauses > 0 => Fate::AfterPause(plan.life(rng)),
        _ => Fate::After(plan.life(rng)),
    };
    let stop_at = matches!(fate, Fate::AtPoint).then(|| {
        let point = POINTS[rng.random_range(0..POINTS.len())];
        format!("{point}:{}", rng.random_range(1..6)).parse().expect("a known point")
    });
    let worker = world.worker(plan, rng.random(), |job| {
        job.first_key = first_key;
        job.stop_at = stop_at;
    })?;
    Ok((worker, fate))
}

fn meet(
    plan: &Plan,
    world: &mut World,
    rng: &mut StdRng,
    mut worker: Worker,
    fate: Fate,
) -> Result<()> {
    worker.await_news(Op::Ready, START)?;
    match fate {
        Fate::After(life) => thread::sleep(life),
        Fate::AfterPause(life) => {
            thread::sleep(life / 2);
            pause(plan, &mut worker, rng)?;
            thread::sleep(life / 2);
        }
        Fate::AtPoint => drop(worker.await_news(Op::Point, POINT)),
    }
    world.kill(worker)
}

/// Longer than a lease: whoever owned a key has lost it.
fn pause(plan: &Plan, worker: &mut Worker, rng: &mut StdRng) -> Result<()> {
    worker.process.pause()?;
    thread::sleep(plan.pause.mul_f64(rng.random_range(0.5..1.5)));
    worker.process.resume()
}

/// Brings every key to its end, in a process that nobody kills.
fn settle(plan: &Plan, world: &mut World, keys: u32) -> Result<()> {
    let mut worker = world.worker(plan, 0, |job| {
        job.keys = keys;
        job.settle = true;
    })?;
    worker.await_news(Op::Done, CALM).context("settling")?;
    world.end(worker)
}
