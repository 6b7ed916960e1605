//! The folder, ledger, history and processes of one run.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    ChaosPlan,
    backend::{Backend, ServerKind},
    nemesis::Nemesis,
};
use crate::{
    event::{Event, Op},
    history::{History, OpenCalls},
    key::KeyClass,
    ledger::{self, LedgerEntry},
    load::{DumpedRecord, WorkerJob},
    process::ChildProcess,
};

/// The folder, ledger, history and processes of one run. Dropped, it kills the processes and removes the folder.
#[derive(Debug)]
pub struct Harness {
    program: PathBuf,
    store: String,
    namespace: String,
    history: History,
    started: u32,
    ledger: ChildProcess,
    backend: Option<Arc<Backend>>,
    folder: TempDir,
}

/// A running worker.
#[derive(Debug)]
pub struct RunningWorker {
    /// Its process number in the history.
    pub number: u32,
    /// The process.
    pub process: ChildProcess,
    events: mpsc::Receiver<Event>,
    reader: JoinHandle<Result<OpenCalls>>,
}

impl Harness {
    /// Creates the folder and starts the ledger, and the servers that the store needs.
    ///
    /// # Errors
    ///
    /// When either fails.
    pub fn start(plan: &ChaosPlan) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("semel-crash-").tempdir()?;
        let history = History::create(&folder.path().join("history.jsonl"))?;
        let mut command = Command::new(&plan.program);
        command.arg("ledger").arg("--socket").arg(folder.path().join("ledger.sock"));
        command.arg("--file").arg(folder.path().join("ledger.jsonl"));
        command.stdout(Stdio::piped()).stderr(log(folder.path())?);
        let mut ledger = ChildProcess::spawn(command)?;
        await_line(&mut ledger)?;
        let backend = ServerKind::of(&plan.store).map(Backend::start).transpose()?.map(Arc::new);
        let path = || plan.store.replace("{dir}", &folder.path().display().to_string());
        Ok(Self {
            program: plan.program.clone(),
            store: backend.as_ref().map_or_else(path, |backend| backend.url()),
            namespace: format!("crash-{:x}-{}", plan.seed, std::process::id()),
            history,
            started: 0,
            ledger,
            backend,
            folder,
        })
    }

    /// Starts a worker with the load of the plan, as changed by `change`.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn worker(
        &mut self,
        plan: &ChaosPlan,
        seed: u64,
        change: impl FnOnce(&mut WorkerJob),
    ) -> Result<RunningWorker> {
        ensure!(self.ledger.ended()?.is_none(), "the ledger has ended");
        self.started += 1;
        let mut job = WorkerJob {
            store: self.store.clone(),
            namespace: self.namespace.clone(),
            ledger: self.folder.path().join("ledger.sock"),
            process: self.started,
            seed,
            first_key: 0,
            keys: plan.keys,
            clients: plan.clients,
            engines: plan.engines,
            lease_ms: u64::try_from(KeyClass::LEASE.as_millis())?,
            calls: None,
            stop_at: None,
            drain: false,
            dump: false,
        };
        change(&mut job);
        let mut command = self.command("worker")?;
        job.arguments(&mut command);
        let mut process = ChildProcess::spawn(command)?;
        let (sender, events) = mpsc::channel();
        let output = process.take_stdout().context("stdout is piped")?;
        let reader = self.history.follow(self.started, output, sender);
        Ok(RunningWorker { number: self.started, process, events, reader })
    }

    /// Starts the nemesis, if the plan has faults and the run has servers of its own.
    pub(super) fn nemesis(&self, plan: &ChaosPlan) -> Option<Nemesis> {
        let backend = self.backend.clone().filter(|_| plan.faults > 0)?;
        Some(Nemesis::start(backend, self.history.clone(), plan.faults, plan.seed))
    }

    /// Kills a worker with SIGKILL, reads the events that it wrote, and closes its calls.
    ///
    /// # Errors
    ///
    /// When the worker had ended before by itself.
    pub fn kill(&mut self, mut worker: RunningWorker) -> Result<()> {
        let status = worker.process.kill()?;
        let killed = status.signal() == Some(Signal::SIGKILL as i32);
        self.close(worker, killed)?;
        ensure!(killed, "a worker ended before it was killed: {status}");
        Ok(())
    }

    /// Waits for the end of a worker that was not killed.
    ///
    /// # Errors
    ///
    /// When the worker fails.
    pub fn end(&mut self, mut worker: RunningWorker) -> Result<()> {
        let status = worker.process.wait_within(Duration::from_secs(30))?;
        self.close(worker, false)?;
        ensure!(status.success(), "a worker failed: {status}");
        Ok(())
    }

    fn close(&self, worker: RunningWorker, killed: bool) -> Result<()> {
        let Ok(open) = worker.reader.join() else { bail!("a reader of the history panicked") };
        self.history.close(worker.number, killed, open?)
    }

    /// Reads the records of the store in a process of its own.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn dump(&mut self, keys: u32) -> Result<Vec<DumpedRecord>> {
        let mut command = self.command("dump")?;
        command.arg(format!("--store={}", self.store));
        command.arg(format!("--namespace={}", self.namespace)).arg(format!("--keys={keys}"));
        let mut process = ChildProcess::spawn(command)?;
        let output = process.take_stdout().context("stdout is piped")?;
        let lines = BufReader::new(output).lines();
        let records = lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect::<Result<_>>()?;
        let status = process.wait_within(Duration::from_secs(30))?;
        ensure!(status.success(), "the dump failed: {status}");
        Ok(records)
    }

    /// Takes the history so far and reads the ledger. The history is empty afterwards.
    ///
    /// # Errors
    ///
    /// When a file cannot be read.
    pub fn evidence(&self) -> Result<(Vec<Event>, Vec<LedgerEntry>)> {
        Ok((self.history.take()?, ledger::read(&self.folder.path().join("ledger.jsonl"))?))
    }

    /// Keeps the folder and names it, for the report of a failure.
    pub(super) fn keep(self) -> String {
        format!("everything about this run is in {}", self.keep_folder().display())
    }

    pub(super) fn keep_folder(self) -> PathBuf {
        drop(self.ledger);
        self.folder.keep()
    }

    fn command(&self, mode: &str) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.arg(mode).stdout(Stdio::piped()).stderr(log(self.folder.path())?);
        Ok(command)
    }
}

impl RunningWorker {
    /// Waits until the worker reports `op`.
    ///
    /// # Errors
    ///
    /// When the worker ends first, or does not report it within `bound`.
    pub fn await_event(&mut self, op: Op, bound: Duration) -> Result<Event> {
        let deadline = Instant::now() + bound;
        loop {
            let event =
                self.next_event(deadline).with_context(|| format!("no {op:?} in {bound:?}"))?;
            if event.op == op {
                return Ok(event);
            }
        }
    }

    /// Collects the events of one kind until the worker is done.
    ///
    /// # Errors
    ///
    /// When the worker ends first, or is not done within `bound`.
    pub fn gather(&mut self, op: Op, bound: Duration) -> Result<Vec<Event>> {
        let (deadline, mut events) = (Instant::now() + bound, Vec::new());
        loop {
            match self.next_event(deadline)? {
                event if event.op == op => events.push(event),
                event if event.op == Op::Done => return Ok(events),
                _ => {}
            }
        }
    }

    fn next_event(&self, deadline: Instant) -> Result<Event> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.events.recv_timeout(left).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => anyhow!("worker {} reported nothing", self.number),
            mpsc::RecvTimeoutError::Disconnected => anyhow!("worker {} has ended", self.number),
        })
    }
}

/// The file for the stderr of all processes of a run.
fn log(folder: &Path) -> Result<File> {
    Ok(OpenOptions::new().create(true).append(true).open(folder.join("stderr.log"))?)
}

/// Waits until a process prints `ready`.
fn await_line(process: &mut ChildProcess) -> Result<()> {
    let mut line = String::new();
    BufReader::new(process.take_stdout().context("stdout is piped")?).read_line(&mut line)?;
    ensure!(line == "ready\n", "process {} ended before it was ready", process.id());
    Ok(())
}
