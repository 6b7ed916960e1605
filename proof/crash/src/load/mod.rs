//! The worker process: one or two engines over one store, under load until it is killed.

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

pub use dump::{DumpedRecord, dump};
pub use job::WorkerJob;
pub use kill_points::KILL_POINTS;

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

use self::{
    journal::Journal, kill_points::KillPoints, names::KeyNames, recording_store::RecordingStore,
};
use crate::{
    event::{Detail, Op},
    ledger::LedgerClient,
    process::die_with_parent,
    stores,
};

/// Everything the clients and handlers of a worker share.
struct WorkerShared {
    job: WorkerJob,
    journal: Arc<Journal>,
    kill_points: Arc<KillPoints>,
    ledger: LedgerClient,
    store: Arc<RecordingStore>,
    engines: Vec<Engine>,
    calls_made: AtomicU64,
}

impl WorkerShared {
    /// Counts one more call. False when the job's number of calls is reached.
    fn may_call_again(&self) -> bool {
        self.job.calls.is_none_or(|limit| self.calls_made.fetch_add(1, Relaxed) < limit)
    }
}

/// Runs a worker to the end of its job. Most workers are killed before.
///
/// # Errors
///
/// When the store or the ledger cannot be reached.
pub fn work(job: WorkerJob) -> Result<()> {
    die_with_parent()?;
    handler::silence_scripted_panics();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    runtime.block_on(run(job))
}

async fn run(job: WorkerJob) -> Result<()> {
    let journal = Arc::new(Journal::default());
    let kill_points = Arc::new(KillPoints::new(job.stop_at.clone(), journal.clone()));
    let store = stores::open_patiently(&job.store).await?;
    let ledger = LedgerClient::connect(Path::new(&job.ledger)).await?;
    let names = KeyNames::new(&job, &*store)?;
    let store = Arc::new(RecordingStore::new(store, names, journal.clone(), kill_points.clone()));
    let engines = (0..job.engines.max(1)).map(|_| engine(&store)).collect::<Result<_>>()?;
    let calls_made = AtomicU64::new(0);
    let shared =
        Arc::new(WorkerShared { job, journal, kill_points, ledger, store, engines, calls_made });
    shared.journal.note(Op::Ready, Detail::default());
    if shared.job.calls.is_some() || !shared.job.drain {
        load(&shared).await;
    }
    if shared.job.drain {
        drain::drain_keys(&shared).await;
    }
    for engine in &shared.engines {
        engine.shutdown(Duration::from_secs(10)).await;
    }
    if shared.job.dump {
        let show = |record| shared.journal.note(Op::Dump, record);
        dump::each(&*shared.store, &shared.job.namespace, shared.store.names(), show).await?;
    }
    shared.journal.note(Op::Done, Detail::default());
    Ok(())
}

fn engine(store: &Arc<RecordingStore>) -> Result<Engine> {
    // Often, so that purges run while keys are claimed.
    let often = Duration::from_millis(40);
    Ok(Engine::builder().store(store.clone()).cleanup_every(often).build()?)
}

async fn load(shared: &Arc<WorkerShared>) {
    let clients = (0..shared.job.clients).map(|number| {
        let seed = shared.job.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(number));
        tokio::spawn(client::client(shared.clone(), StdRng::seed_from_u64(seed)))
    });
    let seed = shared.job.seed.wrapping_mul(1_000_003).wrapping_sub(1);
    let operator = tokio::spawn(operator::operate(shared.clone(), StdRng::seed_from_u64(seed)));
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("clients do not panic");
    }
    operator.abort();
}

/// The tested store.
type AnyStore = Arc<dyn Store>;
