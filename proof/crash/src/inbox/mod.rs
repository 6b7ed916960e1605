//! The chaos run of the inbox: workers and their PostgreSQL are killed. In the end every event must have one effect
//! and one record (I2), and the workers' maintenance must have dropped expired partitions and events.

mod expired;
mod tables;
mod worker;

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use semel_servers::{POSTGRES, Running};
use tempfile::NamedTempFile;

pub use expired::ExpiredRows;
pub use tables::InboxTally;
pub use worker::{InboxJob, work};

use crate::process::ChildProcess;

/// The settings of a chaos run over the inbox.
#[derive(Clone, Debug)]
pub struct InboxPlan {
    /// The program `semel-crash`.
    pub program: PathBuf,
    /// The number of workers to kill.
    pub kills: u32,
    /// The number of kills of the server.
    pub server_kills: u32,
    /// The number of events.
    pub events: u32,
    /// The seed of the random choices.
    pub seed: u64,
}

impl InboxPlan {
    /// A plan with `kills` kills of workers, and a fifth as many of the server.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, kills: u32) -> Self {
        let program = program.into();
        Self { program, kills, server_kills: kills / 5, events: 40 * kills, seed: rand::random() }
    }
}

/// The report of a chaos run over the inbox.
#[derive(Debug)]
pub struct InboxReport {
    /// The workers that were killed.
    pub kills: u32,
    /// How often the server was killed.
    pub server_kills: u32,
    /// The seed of the random choices.
    pub seed: u64,
    /// The tables after the last kill, for the events that a worker had acknowledged.
    pub acknowledged: InboxTally,
    /// The tables at the end, after every event was delivered once more.
    pub all: InboxTally,
    /// The expired rows that the run added.
    pub expired: ExpiredRows,
    /// The expired rows that were left after the last kill.
    pub left_after_kills: ExpiredRows,
    /// The expired rows that were left at the end.
    pub left: ExpiredRows,
}

impl InboxReport {
    /// True when every event has one effect and one record, and maintenance removed what had expired: some of it
    /// while workers were killed, the rest by the end.
    #[must_use]
    pub fn passed(&self) -> bool {
        let Self { acknowledged, all, expired, left_after_kills, left, .. } = self;
        let were_removed = left_after_kills.partitions < expired.partitions
            && left_after_kills.events < expired.events;
        let are_right = acknowledged.events > 0 && acknowledged.is_right() && all.is_right();
        are_right && were_removed && *left == ExpiredRows::default()
    }
}

impl fmt::Display for InboxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, server_kills, seed, acknowledged, all, .. } = self;
        let Self { expired, left_after_kills, left, .. } = self;
        writeln!(f, "{kills} kills of workers, {server_kills} of the server, seed {seed}")?;
        writeln!(f, "acknowledged:     {acknowledged}\nat the end:       {all}")?;
        writeln!(f, "added:            {expired}\nleft after kills: {left_after_kills}")?;
        write!(f, "left at the end:  {left}")
    }
}

/// The drivers and batch modes of workers, in turns.
const MODES: [&str; 4] = ["sqlx", "deadpool", "each", "batch"];
/// How long the last worker may take for each event.
const PER_EVENT: Duration = Duration::from_millis(10);
/// Concurrent workers.
const WORKERS: usize = 3;

/// Carries out the plan.
///
/// # Errors
///
/// When the harness itself fails: a server does not start, or the last worker fails.
pub fn chaos_run(plan: &InboxPlan) -> Result<InboxReport> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let mut server = Running::start(&POSTGRES)?;
    let url = server.url().to_owned();
    let days = tables::prepare(&url, plan.events)?;
    let acks = NamedTempFile::new()?;
    let start =
        |mode, seed, all| start(plan, [&url, &days.join(",")], acks.path(), mode, seed, all);
    let mut workers: Vec<ChildProcess> = Vec::new();
    let (mut kills, mut server_kills, mut next) = (0, 0, 0);
    let mut expired = ExpiredRows::default();
    while kills < plan.kills || server_kills < plan.server_kills {
        while workers.len() < WORKERS {
            workers.push(start(MODES[next % MODES.len()], rng.random(), false)?);
            next += 1;
        }
        thread::sleep(Duration::from_millis(rng.random_range(30..250)));
        // The server aborts this transaction now and then, because a worker finishes an interrupted detach.
        if let Err(error) = expired.add(&url, kills + server_kills) {
            eprintln!("no expired rows were added: {error}");
        }
        // Kills of workers and of the server end at about the same time.
        if server_kills * plan.kills < kills * plan.server_kills {
            server.kill()?;
            thread::sleep(Duration::from_millis(rng.random_range(0..50)));
            server.restart()?;
            server_kills += 1;
        } else {
            workers.swap_remove(rng.random_range(0..WORKERS)).kill()?;
            kills += 1;
        }
    }
    drop(workers);
    let numbers: BTreeSet<i32> =
        fs::read_to_string(acks.path())?.lines().map(str::parse).collect::<Result<_, _>>()?;
    let acknowledged = tables::tally(&url, Some(&numbers))?;
    let left_after_kills = ExpiredRows::left(&url)?;
    let mut last = start("sqlx", 0, true)?;
    let status = last.wait_within(Duration::from_secs(120) + plan.events * PER_EVENT)?;
    ensure!(status.success(), "the worker that delivers all events ended with {status}");
    let all = tables::tally(&url, None)?;
    let left = ExpiredRows::left(&url)?;
    let seed = plan.seed;
    Ok(InboxReport {
        kills,
        server_kills,
        seed,
        acknowledged,
        all,
        expired,
        left_after_kills,
        left,
    })
}

fn start(
    plan: &InboxPlan,
    [url, days]: [&str; 2],
    acks: &Path,
    mode: &str,
    seed: u64,
    all: bool,
) -> Result<ChildProcess> {
    let mut command = Command::new(&plan.program);
    command.args(["inbox-worker", "--url", url, "--days", days, "--mode", mode]);
    command.arg(format!("--seed={seed}")).arg(format!("--events={}", plan.events));
    if all {
        command.arg("--all");
    }
    command.stdout(File::options().append(true).open(acks)?);
    ChildProcess::spawn(command)
}
