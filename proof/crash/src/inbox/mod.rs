//! A storm over the inbox: workers and their PostgreSQL are killed, and then every event must have one
//! effect and one record (I2). Beside the events, workers make partitions and forget what is too old.

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

pub use expired::Old;
pub use tables::Tally;
pub use worker::{Job, work};

use crate::process::Process;

/// What a storm over the inbox does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program `semel-crash`.
    pub program: PathBuf,
    /// SIGKILLs of workers.
    pub kills: u32,
    /// SIGKILLs of the server.
    pub server_kills: u32,
    /// Events.
    pub events: u32,
    /// Where the dice start.
    pub seed: u64,
}

impl Plan {
    /// So many kills of workers, and a fifth as many of the server.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, kills: u32) -> Self {
        let program = program.into();
        Self { program, kills, server_kills: kills / 5, events: 40 * kills, seed: rand::random() }
    }
}

/// How it ended.
#[derive(Debug)]
pub struct Report {
    /// What was killed.
    pub kills: u32,
    /// The same for the server.
    pub server_kills: u32,
    /// Where the dice started.
    pub seed: u64,
    /// What the tables said of events that somebody was told are done, when the last worker was gone.
    pub told: Tally,
    /// What they say when every event was delivered once more.
    pub tally: Tally,
    /// What came to be forgotten.
    pub old: Old,
    /// What of it was still there when the last worker was gone.
    pub late: Old,
    /// And at the end.
    pub left: Old,
}

impl Report {
    /// True when nothing is missing, nothing is there twice, and what is too old was forgotten, some of it meanwhile.
    #[must_use]
    pub fn is_right(&self) -> bool {
        let Self { told, tally, old, late, left, .. } = self;
        let is_forgotten = late.partitions < old.partitions && late.events < old.events;
        let is_right = told.events > 0 && told.is_right() && tally.is_right();
        is_right && is_forgotten && *left == Old::default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, server_kills, seed, told, tally, old, late, left } = self;
        writeln!(f, "{kills} kills of workers, {server_kills} of the server, seed {seed}")?;
        writeln!(f, "acknowledged: {told}\nat the end:   {tally}")?;
        write!(f, "came:         {old}\nmeanwhile:    {late}\nleft:         {left}")
    }
}

/// How workers go about it; several at a time.
const WAYS: [&str; 4] = ["sqlx", "deadpool", "each", "batch"];
/// What the last worker has for each event at most.
const EACH: Duration = Duration::from_millis(10);
/// Workers at the same time.
const WORKERS: usize = 3;

/// Carries out the plan.
///
/// # Errors
///
/// When the harness itself fails: a server that does not start, a worker that fails at its end.
pub fn storm(plan: &Plan) -> Result<Report> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let mut server = Running::start(&POSTGRES)?;
    let url = server.url().to_owned();
    let days = tables::prepare(&url, plan.events)?;
    let acks = NamedTempFile::new()?;
    let start = |way, seed, all| start(plan, [&url, &days.join(",")], acks.path(), way, seed, all);
    let mut workers: Vec<Process> = Vec::new();
    let (mut kills, mut server_kills, mut next) = (0, 0, 0);
    let mut old = Old::default();
    while kills < plan.kills || server_kills < plan.server_kills {
        while workers.len() < WORKERS {
            workers.push(start(WAYS[next % WAYS.len()], rng.random(), false)?);
            next += 1;
        }
        thread::sleep(Duration::from_millis(rng.random_range(30..250)));
        // All of it or nothing: the server breaks it off now and then, for who ends a half-done detach.
        if let Err(error) = old.add(&url, kills + server_kills) {
            eprintln!("nothing old came: {error}");
        }
        // Both run out at about the same time.
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
    let acknowledged: BTreeSet<i32> =
        fs::read_to_string(acks.path())?.lines().map(str::parse).collect::<Result<_, _>>()?;
    let told = tables::tally(&url, Some(&acknowledged))?;
    let late = Old::left(&url)?;
    let mut last = start("sqlx", 0, true)?;
    let ended = last.wait_within(Duration::from_secs(120) + plan.events * EACH)?;
    ensure!(ended.success(), "the worker that goes through all events ended with {ended}");
    let tally = tables::tally(&url, None)?;
    let left = Old::left(&url)?;
    Ok(Report { kills, server_kills, seed: plan.seed, told, tally, old, late, left })
}

fn start(
    plan: &Plan,
    [url, days]: [&str; 2],
    acks: &Path,
    way: &str,
    seed: u64,
    all: bool,
) -> Result<Process> {
    let mut command = Command::new(&plan.program);
    command.args(["inbox-worker", "--url", url, "--days", days, "--way", way]);
    command.arg(format!("--seed={seed}")).arg(format!("--events={}", plan.events));
    if all {
        command.arg("--all");
    }
    command.stdout(File::options().append(true).open(acks)?);
    Process::spawn(command)
}
