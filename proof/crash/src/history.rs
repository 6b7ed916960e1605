//! The harness's side of the history: it reads the events of all workers. What a worker wrote before it was
//! killed is still read.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, BufWriter, Read, Write},
    path::Path,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result};
use parking_lot::Mutex;

use crate::{
    clock::mono,
    event::{Detail, Event, EventKind, Op},
};

/// All events of a run, in memory and in a file. Clones share both.
#[derive(Clone, Debug)]
pub struct History {
    shared: Arc<Mutex<HistoryState>>,
}

#[derive(Debug)]
struct HistoryState {
    events: Vec<Event>,
    answered: u64,
    purged: u64,
    file: BufWriter<File>,
}

/// Calls without an end, by their number.
pub(crate) type OpenCalls = BTreeMap<u64, Event>;

impl History {
    /// An empty history that is also written to `path`.
    ///
    /// # Errors
    ///
    /// When the file cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        let shared =
            HistoryState { events: Vec::new(), answered: 0, purged: 0, file: BufWriter::new(file) };
        Ok(Self { shared: Arc::new(Mutex::new(shared)) })
    }

    /// Reads the events of a process until it ends, and sends those that are not calls to `events`.
    pub(crate) fn follow(
        &self,
        process: u32,
        output: impl Read + Send + 'static,
        events: mpsc::Sender<Event>,
    ) -> JoinHandle<Result<OpenCalls>> {
        let history = self.clone();
        thread::spawn(move || history.read(process, output, &events))
    }

    fn read(
        &self,
        process: u32,
        output: impl Read,
        events: &mpsc::Sender<Event>,
    ) -> Result<OpenCalls> {
        let (mut reader, mut open) = (BufReader::new(output), OpenCalls::new());
        loop {
            let mut line = String::new();
            // The last line of a killed process may be cut off: then its caller got no reply.
            if reader.read_line(&mut line)? == 0 || !line.ends_with('\n') {
                return Ok(open);
            }
            let event: Event =
                serde_json::from_str(&line).with_context(|| format!("not an event: {line}"))?;
            let event = self.append(Event { process, ..event })?;
            match (event.op, event.r#type) {
                (Op::Ready | Op::Point | Op::Done | Op::Dump | Op::Exit | Op::Fault, _) => {
                    drop(events.send(event))
                }
                (_, EventKind::Invoke) => drop(open.insert(event.call, event)),
                (_, EventKind::Ok | EventKind::Fail | EventKind::Info) => {
                    drop(open.remove(&event.call))
                }
            }
        }
    }

    /// Writes the end of a process. Its open calls never get an end.
    pub(crate) fn close(&self, process: u32, killed: bool, open: OpenCalls) -> Result<()> {
        for event in open.into_values() {
            self.append(Event { t_mono: mono(), r#type: EventKind::Info, ..event })?;
        }
        let r#type = if killed { EventKind::Info } else { EventKind::Ok };
        let (seq, call, detail) = (0, 0, Detail::default());
        self.append(Event { seq, t_mono: mono(), process, op: Op::Exit, r#type, call, detail })?;
        Ok(())
    }

    /// Writes a fault that the harness injected into the server.
    pub(crate) fn record_fault(&self, what: &str) -> Result<()> {
        let detail = Detail { point: Some(what.to_owned()), ..Detail::default() };
        let (seq, process, op, r#type, call) = (0, 0, Op::Fault, EventKind::Ok, 0);
        self.append(Event { seq, t_mono: mono(), process, op, r#type, call, detail })?;
        Ok(())
    }

    /// Claims that the store has answered so far. The nemesis takes it as a sign that the store works.
    pub(crate) fn answered(&self) -> u64 {
        self.shared.lock().answered
    }

    /// Purges that have ended so far.
    pub(crate) fn purged(&self) -> u64 {
        self.shared.lock().purged
    }

    fn append(&self, mut event: Event) -> Result<Event> {
        let mut shared = self.shared.lock();
        shared.answered += u64::from((event.op, event.r#type) == (Op::Claim, EventKind::Ok));
        shared.purged += u64::from((event.op, event.r#type) == (Op::Purge, EventKind::Ok));
        event.seq = shared.events.len() as u64 + 1;
        serde_json::to_writer(&mut shared.file, &event)?;
        shared.file.write_all(b"\n")?;
        shared.events.push(event.clone());
        Ok(event)
    }

    /// All events; the history is empty afterwards.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn take(&self) -> Result<Vec<Event>> {
        let mut shared = self.shared.lock();
        shared.file.flush()?;
        Ok(std::mem::take(&mut shared.events))
    }
}
