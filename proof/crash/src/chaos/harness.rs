//! One run's folder, ledger, history and processes.

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
    Plan,
    backend::{Backend, Kind},
    nemesis::Nemesis,
};
use crate::{
    event::{Event, Op},
    history::{History, OpenCalls},
    key::Class,
    ledger::{self, Entry},
    load::{Dumped, Job},
    process::Process,
};

/// A run: its folder, its ledger and its history. Dropped, its processes are killed and its folder is
/// removed.
#[derive(Debug)]
pub struct World {
    program: PathBuf,
    store: String,
    namespace: String,
    history: History,
    started: u32,
    ledger: Process,
    backend: Option<Arc<Backend>>,
    folder: TempDir,
}

/// A worker under way.
#[derive(Debug)]
pub struct Worker {
    /// Its number in the history.
    pub number: u32,
    /// The process itself.
    pub process: Process,
    news: mpsc::Receiver<Event>,
    reader: JoinHandle<Result<OpenCalls>>,
}

impl World {
    /// Makes a folder and starts the ledger, and the server where the store asks for one.
    ///
    /// # Errors
    ///
    /// When either fails.
    pub fn start(plan: &Plan) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("semel-crash-").tempdir()?;
        let history = History::create(&folder.path().join("history.jsonl"))?;
        let mut command = Command::new(&plan.program);
        command.arg("ledger").arg("--socket").arg(folder.path().join("ledger.sock"));
        command.arg("--file").arg(folder.path().join("ledger.jsonl"));
        command.stdout(Stdio::piped()).stderr(log(folder.path())?);
        let mut ledger = Process::spawn(command)?;
        await_line(&mut ledger)?;
        let backend = Kind::of(&plan.store).map(Backend::start).transpose()?.map(Arc::new);
        let here = || plan.store.replace("{dir}", &folder.path().display().to_string());
        Ok(Self {
            program: plan.program.clone(),
            store: backend.as_ref().map_or_else(here, |backend| backend.url()),
            namespace: format!("crash-{:x}-{}", plan.seed, std::process::id()),
            history,
            started: 0,
            ledger,
            backend,
            folder,
        })
    }

    /// Starts a worker with the plan's load; `change` says what is different.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn worker(
        &mut self,
        plan: &Plan,
        seed: u64,
        change: impl FnOnce(&mut Job),
    ) -> Result<Worker> {
        ensure!(self.ledger.ended()?.is_none(), "the ledger has ended");
        self.started += 1;
        let mut job = Job {
            store: self.store.clone(),
            namespace: self.namespace.clone(),
            ledger: self.folder.path().join("ledger.sock"),
            process: self.started,
            seed,
            first_key: 0,
            keys: plan.keys,
            clients: plan.clients,
            engines: plan.engines,
            lease_ms: u64::try_from(Class::LEASE.as_millis())?,
            calls: None,
            stop_at: None,
            settle: false,
            dump: false,
        };
        change(&mut job);
        let mut command = self.command("worker")?;
        job.arguments(&mut command);
        let mut process = Process::spawn(command)?;
        let (sender, news) = mpsc::channel();
        let output = process.take_stdout().context("stdout is piped")?;
        let reader = self.history.follow(self.started, output, sender);
        Ok(Worker { number: self.started, process, news, reader })
    }

    /// Lets blows fall on the server, if it is ours.
    pub(super) fn nemesis(&self, plan: &Plan) -> Option<Nemesis> {
        let backend = self.backend.clone().filter(|_| plan.blows > 0)?;
        Some(Nemesis::start(backend, self.history.clone(), plan.blows, plan.seed))
    }

    /// SIGKILL; then reads what it had written and closes its calls.
    ///
    /// # Errors
    ///
    /// When it had ended before by itself.
    pub fn kill(&mut self, mut worker: Worker) -> Result<()> {
        let status = worker.process.kill()?;
        let killed = status.signal() == Some(Signal::SIGKILL as i32);
        self.close(worker, killed)?;
        ensure!(killed, "a worker ended before it was killed: {status}");
        Ok(())
    }

    /// Waits for the end of a worker that has done its job.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn end(&mut self, mut worker: Worker) -> Result<()> {
        let status = worker.process.wait_within(Duration::from_secs(30))?;
        self.close(worker, false)?;
        ensure!(status.success(), "a worker failed: {status}");
        Ok(())
    }

    fn close(&self, worker: Worker, killed: bool) -> Result<()> {
        let Ok(open) = worker.reader.join() else { bail!("a reader of the history panicked") };
        self.history.close(worker.number, killed, open?)
    }

    /// What is in the store, read by a process of its own.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn dump(&mut self, keys: u32) -> Result<Vec<Dumped>> {
        let mut command = self.command("dump")?;
        command.arg(format!("--store={}", self.store));
        command.arg(format!("--namespace={}", self.namespace)).arg(format!("--keys={keys}"));
        let mut process = Process::spawn(command)?;
        let output = process.take_stdout().context("stdout is piped")?;
        let lines = BufReader::new(output).lines();
        let records = lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect::<Result<_>>()?;
        let status = process.wait_within(Duration::from_secs(30))?;
        ensure!(status.success(), "the dump failed: {status}");
        Ok(records)
    }

    /// History and ledger so far; the history starts anew.
    ///
    /// # Errors
    ///
    /// When a file cannot be read.
    pub fn evidence(&self) -> Result<(Vec<Event>, Vec<Entry>)> {
        Ok((self.history.take()?, ledger::read(&self.folder.path().join("ledger.jsonl"))?))
    }

    /// Keeps the folder and says where it is, for the report of a failure.
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

impl Worker {
    /// Waits until the worker reports `op`.
    ///
    /// # Errors
    ///
    /// When it ends first, or does not within `bound`.
    pub fn await_news(&mut self, op: Op, bound: Duration) -> Result<Event> {
        let deadline = Instant::now() + bound;
        loop {
            let event = self.news(deadline).with_context(|| format!("no {op:?} in {bound:?}"))?;
            if event.op == op {
                return Ok(event);
            }
        }
    }

    /// Everything of one kind that the worker reports until it is done.
    ///
    /// # Errors
    ///
    /// When it ends first, or is not done within `bound`.
    pub fn gather(&mut self, op: Op, bound: Duration) -> Result<Vec<Event>> {
        let (deadline, mut events) = (Instant::now() + bound, Vec::new());
        loop {
            match self.news(deadline)? {
                event if event.op == op => events.push(event),
                event if event.op == Op::Done => return Ok(events),
                _ => {}
            }
        }
    }

    fn news(&self, deadline: Instant) -> Result<Event> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.news.recv_timeout(left).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => anyhow!("worker {} is silent", self.number),
            mpsc::RecvTimeoutError::Disconnected => anyhow!("worker {} has ended", self.number),
        })
    }
}

/// Where all processes of a run complain.
fn log(folder: &Path) -> Result<File> {
    Ok(OpenOptions::new().create(true).append(true).open(folder.join("stderr.log"))?)
}

/// Waits until a process says that it is ready.
fn await_line(process: &mut Process) -> Result<()> {
    let mut line = String::new();
    BufReader::new(process.take_stdout().context("stdout is piped")?).read_line(&mut line)?;
    ensure!(line == "ready\n", "process {} ended before it was ready", process.id());
    Ok(())
}
