//! The chaos run of consumers: processes that consume a JetStream stream are killed, and so is their server. In the end
//! every event must have one outcome, and the ledger may show no run that the promises do not allow.

mod broker;
mod evidence;
mod worker;

use std::{
    fmt,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use semel_servers::{NATS, Running};
use tempfile::NamedTempFile;

pub use evidence::ConsumerTally;
pub use worker::{ConsumerJob, work};

use self::evidence::Line;
use crate::process::ChildProcess;

/// The settings of a chaos run over consumers.
#[derive(Clone, Debug)]
pub struct ConsumerChaosPlan {
    /// The program `semel-crash`.
    pub program: PathBuf,
    /// The number of processes to kill.
    pub kills: u32,
    /// The number of kills of the server.
    pub server_kills: u32,
    /// The number of events. Three in ten are published twice.
    pub events: u32,
    /// The number of events that kill each process that handles them.
    pub poison: u32,
    /// The seed of the random choices.
    pub seed: u64,
}

impl ConsumerChaosPlan {
    /// A plan with 50,000 events or more, `kills` kills of processes, and an eighth as many of the server.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, kills: u32) -> Self {
        Self {
            program: program.into(),
            kills,
            server_kills: kills / 8,
            events: (25 * kills).max(50_000),
            poison: 2,
            seed: rand::random(),
        }
    }

    /// The ids of all events.
    fn ids(&self) -> impl Iterator<Item = String> {
        let poison = (0..self.poison).map(|number| format!("poison-{number}"));
        poison.chain((0..self.events).map(|number| match number % 50 {
            0 => format!("refused-{number}"),
            1..=3 => format!("retried-{number}"),
            _ => format!("plain-{number}"),
        }))
    }
}

/// The report of a chaos run over consumers.
#[derive(Debug)]
pub struct ConsumerChaosReport {
    /// How many processes were killed by the run.
    pub kills: u32,
    /// How many processes were killed by an event.
    pub poisoned: u32,
    /// How often the server was killed.
    pub server_kills: u32,
    /// The number of messages.
    pub messages: usize,
    /// The seed of the random choices.
    pub seed: u64,
    /// What the ledger, the store and the dead letters say.
    pub tally: ConsumerTally,
}

impl ConsumerChaosReport {
    /// True when every event has one outcome, and every run has a reason.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.tally.wrong.is_empty()
    }
}

impl fmt::Display for ConsumerChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, poisoned, server_kills, messages, seed, tally } = self;
        write!(f, "{kills} kills of processes, {server_kills} of the server, ")?;
        writeln!(f, "{poisoned} processes died of an event, seed {seed}")?;
        write!(f, "{messages} messages: {tally}")
    }
}

/// Concurrent processes.
const PROCESSES: usize = 3;
/// An event that kills its process has so many attempts. No other event comes near it.
const MAX_ATTEMPTS: u32 = 6;
/// A killed process holds its events for this long.
const LEASE: Duration = Duration::from_secs(2);
/// How long all messages may take to be settled after the last kill.
const DRAIN: Duration = Duration::from_secs(120);
const PER_EVENT: Duration = Duration::from_millis(5);

/// Carries out the plan.
///
/// # Errors
///
/// When the harness itself fails: a server or a process does not start, or messages are left at the end.
pub fn chaos_run(plan: &ConsumerChaosPlan) -> Result<ConsumerChaosReport> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut server = Running::start(&NATS)?;
    let url = server.url().to_owned();
    runtime.block_on(broker::prepare(&url))?;

    let ids: Vec<String> = plan.ids().collect();
    let copies = ids.iter().filter(|_| rng.random_bool(0.3)).cloned().collect::<Vec<_>>();
    let mut messages = [ids.clone(), copies].concat();
    messages.shuffle(&mut rng);
    let faults = plan.kills + plan.server_kills;
    let mut chunks = messages.chunks(messages.len().div_ceil(faults.max(1) as usize));

    let mut group = ProcessGroup::new(&plan.program, &url)?;
    let (mut kills, mut server_kills) = (0, 0);
    while kills < plan.kills || server_kills < plan.server_kills {
        runtime.block_on(broker::publish(&url, chunks.next().unwrap_or_default()))?;
        group.replace_dead()?;
        thread::sleep(Duration::from_millis(rng.random_range(50..500)));
        group.replace_dead()?;
        // Kills of processes and of the server end at about the same time.
        if server_kills * plan.kills < kills * plan.server_kills {
            server.kill()?;
            thread::sleep(Duration::from_millis(rng.random_range(0..50)));
            server.restart()?;
            server_kills += 1;
        } else {
            group.kill(rng.random_range(0..PROCESSES))?;
            kills += 1;
        }
    }
    for chunk in chunks {
        runtime.block_on(broker::publish(&url, chunk))?;
    }
    let deadline = Instant::now() + DRAIN + plan.events * PER_EVENT;
    loop {
        group.replace_dead()?;
        let left = runtime.block_on(broker::unsettled(&url))?;
        if left == 0 {
            break;
        }
        ensure!(Instant::now() < deadline, "{left} messages are not settled; seed {}", plan.seed);
        thread::sleep(Duration::from_millis(100));
    }

    let poisoned = group.poisoned;
    let ledger = evidence::read(group.end().path())?;
    let mut tally = ConsumerTally::of(&ids, &ledger);
    runtime.block_on(tally.compare_records(&url, &ids))?;
    let (messages, seed) = (messages.len(), plan.seed);
    Ok(ConsumerChaosReport { kills, poisoned, server_kills, messages, seed, tally })
}

/// The processes of a run, and the ledger that they write to.
struct ProcessGroup<'a> {
    program: &'a Path,
    url: &'a str,
    ledger: NamedTempFile,
    processes: Vec<(u32, ChildProcess)>,
    /// Processes that an event killed.
    poisoned: u32,
    next: u32,
}

impl<'a> ProcessGroup<'a> {
    fn new(program: &'a Path, url: &'a str) -> Result<Self> {
        let ledger = NamedTempFile::new()?;
        let mut group = Self { program, url, ledger, processes: vec![], poisoned: 0, next: 1 };
        group.replace_dead()?;
        Ok(group)
    }

    /// Starts a process for each one that an event has killed.
    fn replace_dead(&mut self) -> Result<()> {
        for (number, mut process) in std::mem::take(&mut self.processes) {
            match process.ended()? {
                Some(status) => {
                    ensure!(status.code().is_none(), "process {number} ended with {status}");
                    self.poisoned += 1;
                    self.note_killed(number)?;
                }
                None => self.processes.push((number, process)),
            }
        }
        while self.processes.len() < PROCESSES {
            let mut command = Command::new(self.program);
            command.args(["consumer-worker", "--url", self.url, "--process"]);
            command.arg(self.next.to_string()).arg("--ledger").arg(self.ledger.path());
            self.processes.push((self.next, ChildProcess::spawn(command)?));
            self.next += 1;
        }
        Ok(())
    }

    fn kill(&mut self, at: usize) -> Result<()> {
        let (number, mut process) = self.processes.swap_remove(at);
        process.kill()?;
        self.note_killed(number)
    }

    /// The process has ended: what it ran may run again from this line on.
    fn note_killed(&self, number: u32) -> Result<()> {
        let mut ledger = File::options().append(true).open(self.ledger.path())?;
        let line = Line::killed(number);
        Ok(ledger.write_all(line.as_bytes())?)
    }

    /// Kills all processes, and returns the ledger.
    fn end(self) -> NamedTempFile {
        drop(self.processes);
        self.ledger
    }
}
