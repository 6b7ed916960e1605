//! The stall run: two nodes share a store whose server does not answer for longer than a lease, while work runs at
//! both and duplicates wait at the other one. No work may run twice, because every owner is alive.
//!
//! An idle node asks for every key as soon as the stall is over: nothing of it waits in a socket, and its connections
//! have lost nothing. A fourth node dies while it owns keys: they must be taken over, a grace period after their leases.

mod servers;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures_util::future::join_all;
use parking_lot::Mutex;
use semel_core::{Engine, Fingerprint, Key, Policy, RunError, Scope, Store};
use semel_store_nats::NatsStore;
use semel_store_postgres::PostgresStore;
use semel_store_redis::RedisStore;
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

pub use servers::{StallKind, StalledStore};

use self::servers::StalledServers;

/// How long nodes may take to answer after a stall.
const RECOVERY: Duration = Duration::from_secs(60);
/// How long duplicates wait before the stall begins.
const BEFORE: Duration = Duration::from_millis(200);
/// The pause of a client between two tries.
const RETRY: Duration = Duration::from_millis(50);
/// How many keys the node that dies owns.
const KEYS_OF_DEAD_NODE: u32 = 8;

/// The settings of a stall run.
#[derive(Clone, Debug)]
pub struct StallPlan {
    /// The store.
    pub store: StalledStore,
    /// How the server stalls.
    pub kind: StallKind,
    /// How long it stalls.
    pub stall: Duration,
    /// The lease of every key.
    pub lease: Duration,
    /// How often.
    pub rounds: u32,
    /// The keys of each round.
    pub keys: u32,
}

/// What a stall run has found.
#[derive(Clone, Debug)]
pub struct StallReport {
    /// The settings.
    pub plan: StallPlan,
    /// Keys of living owners whose work ran more than once.
    pub ran_twice: Vec<String>,
    /// Callers that got no outcome, or another one than the first run's, with the reason.
    pub wrong: Vec<String>,
    /// Answers of owners whose outcome was not recorded in time.
    pub unstored: usize,
    /// How long after the end of the stall the last caller had its answer, over all rounds.
    pub slowest: Duration,
    /// When keys of the dead node ran again, after their lease and the stall were over.
    pub taken_over: Vec<Duration>,
}

impl StallReport {
    /// True if no work of a living owner ran twice, every caller got its outcome, and every outcome was recorded.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.ran_twice.is_empty() && self.wrong.is_empty() && self.unstored == 0
    }
}

impl fmt::Display for StallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StallPlan { store, kind, stall, lease, rounds, keys } = &self.plan;
        writeln!(
            f,
            "{store:?}: {rounds} x {kind} of {stall:?}, lease {lease:?}, {} keys: {} ran twice, {} not stored, \
             last answer {:?} after a stall",
            rounds * keys,
            self.ran_twice.len(),
            self.unstored,
            self.slowest
        )?;
        let (least, most) = (self.taken_over.iter().min(), self.taken_over.iter().max());
        if let (Some(least), Some(most)) = (least, most) {
            writeln!(
                f,
                "{} keys of a dead owner were taken over {least:?} to {most:?} after lease and stall",
                self.taken_over.len()
            )?;
        }
        self.ran_twice.iter().try_for_each(|key| writeln!(f, "  BROKEN {key} ran twice"))?;
        self.wrong.iter().try_for_each(|what| writeln!(f, "  BROKEN {what}"))
    }
}

/// Carries out a plan.
///
/// # Errors
///
/// When the run itself fails: a server does not start, or a node does not answer before the first stall.
pub fn stall_run(plan: &StallPlan) -> Result<StallReport> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(carry_out(plan));
    // The work of the dead node never ends.
    runtime.shutdown_background();
    report
}

async fn carry_out(plan: &StallPlan) -> Result<StallReport> {
    let mut servers = StalledServers::start(plan.store)?;
    let url = servers.url();
    let nodes = [node(&url, plan).await?, node(&url, plan).await?];
    let idle = node(&url, plan).await?;
    let mut report = StallReport {
        plan: plan.clone(),
        ran_twice: Vec::new(),
        wrong: Vec::new(),
        unstored: 0,
        slowest: Duration::ZERO,
        taken_over: Vec::new(),
    };
    let dead = match servers.dead_node_url() {
        Some(url) => Some(node(&url, plan).await?),
        None => None,
    };
    for number in 0..plan.rounds {
        let dead = dead.as_ref().filter(|_| number == 0);
        let (nodes, idle) = (nodes.clone(), idle.clone());
        let round = StallRound { number, plan: plan.clone(), nodes, idle };
        servers = round.run(servers, dead, &mut report).await?;
    }
    Ok(report)
}

/// A node with the defaults of its store.
async fn node(url: &str, plan: &StallPlan) -> Result<Engine> {
    let store: Arc<dyn Store> = match plan.store {
        StalledStore::Postgres => {
            Arc::new(PostgresStore::builder(url).migrate(true).connect().await?)
        }
        StalledStore::Redis | StalledStore::Valkey => Arc::new(RedisStore::connect(url).await?),
        StalledStore::Nats => Arc::new(NatsStore::connect(url).await?),
        StalledStore::NatsCluster => Arc::new(NatsStore::builder(url).replicas(3).connect().await?),
        StalledStore::Arbiter => crate::stores::open(url).await?,
    };
    let policy = Policy::api().lease(plan.lease).wait(plan.stall + RECOVERY);
    Ok(Engine::builder().store(store).policy(policy).build()?)
}

#[derive(Clone)]
struct StallRound {
    number: u32,
    plan: StallPlan,
    nodes: [Engine; 2],
    idle: Engine,
}

/// The runs of each key.
type Runs = Arc<Vec<AtomicU32>>;

impl StallRound {
    async fn run(
        &self,
        mut servers: StalledServers,
        dead: Option<&Engine>,
        report: &mut StallReport,
    ) -> Result<StalledServers> {
        let Self { plan, nodes, idle, .. } = self;
        let runs: Runs = Arc::new((0..plan.keys).map(|_| AtomicU32::new(0)).collect());
        let takeovers = match dead {
            Some(dead) => Some(self.die(dead, &servers).await?),
            None => None,
        };
        let owners = (0..plan.keys).map(|key| {
            tokio::spawn(self.clone().client(nodes[key as usize % 2].clone(), key, runs.clone()))
        });
        let owners: Vec<_> = owners.collect();
        let all_run = async {
            while runs.iter().any(|runs| runs.load(SeqCst) == 0) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(RECOVERY, all_run).await.context("the work does not begin")?;
        let duplicates = (0..plan.keys).map(|key| {
            let other = nodes[(key as usize + 1) % 2].clone();
            tokio::spawn(self.clone().client(other, key, runs.clone()))
        });
        let duplicates: Vec<_> = duplicates.collect();
        sleep(BEFORE).await;
        let (kind, span) = (plan.kind, plan.stall);
        servers = spawn_blocking(move || servers.stall(kind, span).map(|()| servers)).await??;
        let resumed_at = Instant::now();
        let late = (0..plan.keys)
            .map(|key| tokio::spawn(self.clone().client(idle.clone(), key, runs.clone())));
        let late: Vec<_> = late.collect();
        for answer in join_all(owners.into_iter().chain(duplicates).chain(late)).await {
            match answer? {
                Ok(stored) => report.unstored += usize::from(!stored),
                Err(what) => report.wrong.push(what),
            }
        }
        report.slowest = report.slowest.max(resumed_at.elapsed());
        let twice = (0..plan.keys).filter(|key| runs[*key as usize].load(SeqCst) > 1);
        report.ran_twice.extend(twice.map(|key| self.name(key)));
        if let Some(takeovers) = takeovers {
            let taken = takeovers.wait(resumed_at, plan).await?;
            report.taken_over.extend(taken);
        }
        Ok(servers)
    }

    fn name(&self, key: u32) -> String {
        format!("round-{}-key-{key}", self.number)
    }

    /// Half of the work ends in the stall, so that its outcome waits for the server. The other half goes on after it.
    fn work(&self, key: u32) -> Duration {
        match key / 2 % 2 {
            0 => self.plan.lease * 3 / 10,
            _ => BEFORE + self.plan.stall + self.plan.lease / 2,
        }
    }

    /// Asks until there is an outcome, as a client does, and returns whether it was recorded.
    async fn client(self, node: Engine, key: u32, runs: Runs) -> Result<bool, String> {
        let name = self.name(key);
        let deadline = Instant::now() + self.plan.stall + RECOVERY;
        loop {
            let (runs, span) = (runs.clone(), self.work(key));
            let work = move |_| async move {
                let run = runs[key as usize].fetch_add(1, SeqCst) + 1;
                sleep(span).await;
                Ok::<_, std::io::Error>(run)
            };
            match node.run(self.key(&name), Fingerprint::of_bytes(b"this"), work).await {
                Ok(answer) if answer.value == 1 => return Ok(answer.stored),
                Ok(answer) => return Err(format!("{name} was answered with run {}", answer.value)),
                Err(RunError::Busy { .. } | RunError::Store(_)) if Instant::now() < deadline => {
                    sleep(RETRY).await;
                }
                Err(error) => return Err(format!("{name} has no outcome: {error}")),
            }
        }
    }

    fn key(&self, name: &str) -> Key {
        Scope::new("stall", "tests", "work").key(name).expect("a valid key")
    }

    /// The dead node claims its keys and is heard no more; others wait for them.
    async fn die(&self, dead: &Engine, servers: &StalledServers) -> Result<Takeovers> {
        let (started, taken) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
        for number in 0..KEYS_OF_DEAD_NODE {
            let (key, started) = (self.key(&format!("dead-{number}")), started.clone());
            let work = move |_| async move {
                started.fetch_add(1, SeqCst);
                std::future::pending::<Result<u32, std::io::Error>>().await
            };
            let dead = dead.clone();
            tokio::spawn(async move { dead.run(key, Fingerprint::of_bytes(b"this"), work).await });
        }
        let all_run = async {
            while started.load(SeqCst) < KEYS_OF_DEAD_NODE {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(RECOVERY, all_run).await.context("the work of the dead node does not begin")?;
        servers.cut_off_dead_node();
        for number in 0..KEYS_OF_DEAD_NODE {
            let (round, taken, node) = (self.clone(), taken.clone(), self.nodes[0].clone());
            tokio::spawn(async move {
                let name = format!("dead-{number}");
                loop {
                    let taken = taken.clone();
                    let work = move |_| async move {
                        taken.lock().push(Instant::now());
                        Ok::<_, std::io::Error>(2u32)
                    };
                    let key = round.key(&name);
                    if node.run(key, Fingerprint::of_bytes(b"this"), work).await.is_ok() {
                        return;
                    }
                    sleep(RETRY).await;
                }
            });
        }
        Ok(Takeovers { died_at: Instant::now(), taken })
    }
}

/// When keys of the dead node ran again.
struct Takeovers {
    died_at: Instant,
    taken: Arc<Mutex<Vec<Instant>>>,
}

impl Takeovers {
    /// Waits for all of them, and returns how long they took after the leases and the stall were over.
    async fn wait(self, resumed_at: Instant, plan: &StallPlan) -> Result<Vec<Duration>> {
        let since = resumed_at.max(self.died_at + plan.lease);
        let deadline = since + RECOVERY;
        loop {
            let taken = self.taken.lock().clone();
            if taken.len() >= KEYS_OF_DEAD_NODE as usize {
                return Ok(taken.iter().map(|at| at.duration_since(since)).collect());
            }
            ensure!(Instant::now() < deadline, "keys of a dead owner are not taken over");
            sleep(Duration::from_millis(5)).await;
        }
    }
}
