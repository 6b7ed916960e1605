//! The worker: an engine or two over one store, under load until it is killed.

mod client;
mod drain;
mod dump;
mod handler;
mod job;
mod journal;
mod kill_points;
mod names;
mod operator;
mod outcome;
mod recording_store;
mod reply;

pub use dump::{Dumped, dump};
pub use job::Job;
pub use kill_points::POINTS;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Result;
use rand::{SeedableRng, rngs::StdRng};
use semel_core::{Engine, Store};

use self::{journal::Journal, kill_points::Points, names::Names, recording_store::Witness};
use crate::{
    event::{Detail, Op},
    ledger::Ledger,
    process::die_with_parent,
    stores,
};

/// Everything the clients and handlers of a worker share.
struct World {
    job: Job,
    journal: Arc<Journal>,
    points: Arc<Points>,
    ledger: Ledger,
    witness: Arc<Witness>,
    engines: Vec<Engine>,
    asked: AtomicU64,
}

impl World {
    /// Counts a call, unless there were enough.
    fn takes_another(&self) -> bool {
        self.job.calls.is_none_or(|most| self.asked.fetch_add(1, Relaxed) < most)
    }
}

/// Runs a worker to the end of its job, which most do not live to see.
///
/// # Errors
///
/// When the store or the ledger cannot be reached.
pub fn work(job: Job) -> Result<()> {
    die_with_parent()?;
    handler::silence_planned_panics();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    runtime.block_on(run(job))
}

async fn run(job: Job) -> Result<()> {
    let journal = Arc::new(Journal::default());
    let points = Arc::new(Points::new(job.stop_at.clone(), journal.clone()));
    let store = stores::open_patiently(&job.store).await?;
    let ledger = Ledger::connect(Path::new(&job.ledger)).await?;
    let names = Names::new(&job, &*store)?;
    let witness = Arc::new(Witness::new(store, names, journal.clone(), points.clone()));
    let engines = (0..job.engines.max(1)).map(|_| engine(&witness)).collect::<Result<_>>()?;
    let asked = AtomicU64::new(0);
    let world = Arc::new(World { job, journal, points, ledger, witness, engines, asked });
    world.journal.note(Op::Ready, Detail::default());
    if world.job.calls.is_some() || !world.job.settle {
        load(&world).await;
    }
    if world.job.settle {
        drain::all(&world).await;
    }
    for engine in &world.engines {
        engine.shutdown(Duration::from_secs(10)).await;
    }
    if world.job.dump {
        let show = |record| world.journal.note(Op::Dump, record);
        dump::each(&*world.witness, &world.job.namespace, world.witness.names(), show).await?;
    }
    world.journal.note(Op::Done, Detail::default());
    Ok(())
}

fn engine(witness: &Arc<Witness>) -> Result<Engine> {
    // Often, so that records are purged while others are claimed.
    let often = Duration::from_millis(40);
    Ok(Engine::builder().store(witness.clone()).cleanup_every(often).build()?)
}

async fn load(world: &Arc<World>) {
    let clients = (0..world.job.clients).map(|number| {
        let seed = world.job.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(number));
        tokio::spawn(client::client(world.clone(), StdRng::seed_from_u64(seed)))
    });
    let seed = world.job.seed.wrapping_mul(1_000_003).wrapping_sub(1);
    let operator = tokio::spawn(operator::operate(world.clone(), StdRng::seed_from_u64(seed)));
    for client in clients.collect::<Vec<_>>() {
        // A client that panicked has proved nothing; the history shows its call as open.
        client.await.expect("clients do not panic");
    }
    operator.abort();
}

/// The store a worker sees, whatever is behind it.
type AnyStore = Arc<dyn Store>;
