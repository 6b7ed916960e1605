//! The chaos run of consumers: processes that consume a JetStream stream or a Kafka topic are killed, and so is their
//! broker. In the end every event must have one outcome, and the ledger may show no run that the promises do not allow.
//! Over Kafka no committed offset may ever go back, or pass a record whose event is not done.

mod broker;
mod committed;
mod evidence;
mod worker;

use std::{
    fmt,
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use tempfile::NamedTempFile;

pub use broker::BrokerKind;
pub use evidence::ConsumerTally;
pub use worker::{ConsumerJob, work};

use self::{
    broker::{Addresses, Servers},
    committed::OffsetWatch,
    evidence::Line,
};
use crate::process::ChildProcess;

/// The settings of a chaos run over consumers.
#[derive(Clone, Debug)]
pub struct ConsumerChaosPlan {
    /// The program `semel-crash`.
    pub program: PathBuf,
    /// The broker.
    pub broker: BrokerKind,
    /// The number of processes to kill.
    pub kills: u32,
    /// The number of kills of the broker.
    pub server_kills: u32,
    /// The number of events. Three in ten are published twice.
    pub events: u32,
    /// The number of events that kill each process that handles them.
    pub poison: u32,
    /// The seed of the random choices.
    pub seed: u64,
}

impl ConsumerChaosPlan {
    /// A plan with 50,000 events or more, `kills` kills of processes, and an eighth as many of the broker.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, broker: BrokerKind, kills: u32) -> Self {
        Self {
            program: program.into(),
            broker,
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
    /// How often the broker was killed.
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
        write!(f, "{kills} kills of processes, {server_kills} of the broker, ")?;
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

/// How long it may take until an event runs after a kill.
const NEXT_RUN: Duration = Duration::from_secs(60);

/// Carries out the plan.
///
/// # Errors
///
/// When the harness itself fails: a server or a process does not start, or messages are left at the end.
pub fn chaos_run(plan: &ConsumerChaosPlan) -> Result<ConsumerChaosReport> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut servers = Servers::start(plan.broker)?;
    let addresses = servers.addresses(plan.broker);
    let broker = addresses.broker();
    runtime.block_on(broker.prepare())?;
    runtime.block_on(addresses.store())?;

    let ids: Vec<String> = plan.ids().collect();
    let copies = ids.iter().filter(|_| rng.random_bool(0.3)).cloned().collect::<Vec<_>>();
    let mut messages = [ids.clone(), copies].concat();
    messages.shuffle(&mut rng);
    let faults = plan.kills + plan.server_kills;
    let mut chunks = messages.chunks(messages.len().div_ceil(faults.max(1) as usize));

    let mut group = ProcessGroup::new(&plan.program, &addresses)?;
    let watch = broker.watch(group.ledger.path())?;
    let (mut kills, mut server_kills) = (0, 0);
    while kills < plan.kills || server_kills < plan.server_kills {
        let chunk = chunks.next().unwrap_or_default();
        let published_at = group.ledger_length()?;
        runtime.block_on(broker.publish(chunk))?;
        group.replace_dead()?;
        // The next kill hits a group that has just gone on, or one that may not have recovered from the last kill.
        let pause = if rng.random_bool(0.5) && !chunk.is_empty() {
            group.wait_for_a_run(published_at)?;
            0..30
        } else {
            50..500
        };
        thread::sleep(Duration::from_millis(rng.random_range(pause)));
        group.replace_dead()?;
        // Kills of processes and of the broker end at about the same time.
        if server_kills * plan.kills < kills * plan.server_kills {
            servers.broker.kill()?;
            thread::sleep(Duration::from_millis(rng.random_range(0..50)));
            servers.broker.restart()?;
            server_kills += 1;
        } else {
            group.kill(rng.random_range(0..PROCESSES))?;
            kills += 1;
        }
    }
    for chunk in chunks {
        runtime.block_on(broker.publish(chunk))?;
    }
    let deadline = Instant::now() + DRAIN + plan.events * PER_EVENT;
    loop {
        group.replace_dead()?;
        let left = runtime.block_on(broker.unsettled())?;
        if left == 0 {
            break;
        }
        ensure!(Instant::now() < deadline, "{left} messages are not settled; seed {}", plan.seed);
        thread::sleep(Duration::from_millis(100));
    }

    let offsets = watch.map(OffsetWatch::end).transpose()?;
    let poisoned = group.poisoned;
    let ledger = evidence::read(group.end().path())?;
    let mut tally = ConsumerTally::of(&ids, &ledger);
    if let Some(events) = offsets {
        tally.compare_offsets(&events, &ledger);
    }
    runtime.block_on(tally.compare_records(&addresses, &ids))?;
    let (messages, seed) = (messages.len(), plan.seed);
    Ok(ConsumerChaosReport { kills, poisoned, server_kills, messages, seed, tally })
}

/// The processes of a run, and the ledger that they write to.
struct ProcessGroup<'a> {
    program: &'a Path,
    servers: &'a Addresses,
    ledger: NamedTempFile,
    processes: Vec<(u32, ChildProcess)>,
    /// Processes that an event killed.
    poisoned: u32,
    next: u32,
}

impl<'a> ProcessGroup<'a> {
    fn new(program: &'a Path, servers: &'a Addresses) -> Result<Self> {
        let ledger = NamedTempFile::new()?;
        let mut group = Self { program, servers, ledger, processes: vec![], poisoned: 0, next: 1 };
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
            command.arg("consumer-worker").args(self.servers.arguments()).arg("--process");
            command.arg(self.next.to_string()).arg("--ledger").arg(self.ledger.path());
            self.processes.push((self.next, ChildProcess::spawn(command)?));
            self.next += 1;
        }
        Ok(())
    }

    fn ledger_length(&self) -> Result<u64> {
        Ok(self.ledger.path().metadata()?.len())
    }

    /// Waits until an event has begun since the ledger was so long.
    fn wait_for_a_run(&mut self, length: u64) -> Result<()> {
        let deadline = Instant::now() + NEXT_RUN;
        let mut ledger = File::open(self.ledger.path())?;
        let mut written = String::new();
        ledger.seek(SeekFrom::Start(length))?;
        loop {
            ledger.read_to_string(&mut written)?;
            if written.contains("begins ") {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "no event ran within {NEXT_RUN:?} after a kill");
            thread::sleep(Duration::from_millis(20));
            self.replace_dead()?;
        }
    }

    fn kill(&mut self, at: usize) -> Result<()> {
        let (number, mut process) = self.processes.swap_remove(at);
        process.kill()?;
        self.note_killed(number)
    }

    fn note_killed(&self, number: u32) -> Result<()> {
        let mut ledger = File::options().append(true).open(self.ledger.path())?;
        let line = Line::Killed { process: number };
        Ok(ledger.write_all(line.to_string().as_bytes())?)
    }

    /// Kills all processes, and returns the ledger.
    fn end(self) -> NamedTempFile {
        drop(self.processes);
        self.ledger
    }
}
