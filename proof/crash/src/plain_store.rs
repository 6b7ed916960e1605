//! The simplest durable store: the protocol's steps over a map, and a file to which every change is appended.
//! It tests the harness: with [`Acknowledge::Written`] a chaos run must find nothing, with [`Acknowledge::Early`]
//! it must find lost outcomes.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, Clock, CompleteRequest, Completion,
    Durability, Erasure, Error, ErrorKind, Forgetting, HashSecret, KeyHash, ListQuery, Purged,
    Record, Release, ReleaseRequest, RenewRequest, Renewal, Resolution, ResolveRequest, Result,
    Sighting, State, Stats, Store, StoreInfo, SystemClock, Timestamp, codec,
    steps::{self, Change, Step},
};

/// When a step is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// After its change is on the disk.
    Written,
    /// At once; the change is written a little later. A planted bug.
    Early,
}

/// The simplest durable store.
pub struct PlainStore {
    inner: Arc<Mutex<PlainLog>>,
    acknowledge: Acknowledge,
    clock: SystemClock,
}

struct PlainLog {
    records: BTreeMap<KeyHash, Record>,
    log: File,
    /// Changes that are not in the file yet.
    pending: Vec<u8>,
}

impl PlainStore {
    /// How late [`Acknowledge::Early`] writes.
    const LATE: Duration = Duration::from_millis(30);

    /// Reads the file and appends to it from then on. The caller makes sure that no other process has it open.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or is not such a log.
    pub fn open(path: &Path, acknowledge: Acknowledge) -> Result<Self> {
        let clock = SystemClock::new();
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.map_err(failed)?,
        };
        let (records, whole) = replayed(bytes.into(), clock.now())?;
        let log = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        // What a killed process left half written was never acknowledged.
        log.set_len(whole).map_err(failed)?;
        let inner = Arc::new(Mutex::new(PlainLog { records, log, pending: Vec::new() }));
        if acknowledge == Acknowledge::Early {
            write_late(&inner);
        }
        Ok(Self { inner, acknowledge, clock })
    }

    fn step<A>(
        &self,
        key: &KeyHash,
        decide: impl FnOnce(Option<&Record>, Timestamp) -> Step<A>,
    ) -> Result<A> {
        let mut inner = self.inner.lock();
        let step = decide(inner.records.get(key), self.clock.now());
        inner.change(*key, step.change);
        self.written(&mut inner)?;
        Ok(step.answer)
    }

    fn written(&self, inner: &mut PlainLog) -> Result<()> {
        if self.acknowledge == Acknowledge::Early {
            return Ok(());
        }
        inner.write().map_err(failed)
    }
}

impl PlainLog {
    fn change(&mut self, key: KeyHash, change: Change) {
        let bytes = match change {
            Change::Keep => return,
            Change::Put(record) => {
                let bytes = codec::encode(&record);
                self.records.insert(key, record);
                bytes
            }
            Change::Delete => {
                self.records.remove(&key);
                Bytes::new()
            }
        };
        let length = u32::try_from(bytes.len()).expect("records are smaller than 4 GiB");
        self.pending.extend_from_slice(key.as_bytes());
        self.pending.extend_from_slice(&length.to_be_bytes());
        self.pending.extend_from_slice(&bytes);
    }

    fn write(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.log.write_all(&self.pending)?;
        self.pending.clear();
        self.log.sync_data()
    }
}

/// The records in the file, and where the last whole one ends.
fn replayed(mut bytes: Bytes, now: Timestamp) -> Result<(BTreeMap<KeyHash, Record>, u64)> {
    let (mut records, mut whole) = (BTreeMap::new(), 0);
    while bytes.len() >= 36 {
        let mut key = [0; 32];
        bytes.copy_to_slice(&mut key);
        let length = bytes.get_u32() as usize;
        if bytes.len() < length {
            break;
        }
        let record = bytes.split_to(length);
        whole += 36 + length as u64;
        let key = KeyHash::from_bytes(key);
        if record.is_empty() {
            records.remove(&key);
        } else {
            records.insert(key, codec::decode(&record)?);
        }
    }
    // Opening proves that the process of every earlier owner has ended.
    for record in records.values_mut().filter(|record| record.state == State::InProgress) {
        record.lease_until = record.lease_until.min(now);
        record.contested = !record.abandoned;
    }
    Ok((records, whole))
}

fn write_late(inner: &Arc<Mutex<PlainLog>>) {
    let inner = Arc::downgrade(inner);
    thread::spawn(move || {
        while let Some(inner) = inner.upgrade() {
            thread::sleep(PlainStore::LATE);
            inner.lock().write().expect("the file is writable");
        }
    });
}

fn failed(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the file failed").with_source(error)
}

impl fmt::Debug for PlainStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainStore").field("acknowledge", &self.acknowledge).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PlainStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            name: "plain",
            durability: Durability::Durable,
            max_outcome_bytes: 1024 * 1024,
            hash_secret: None::<HashSecret>,
            change_feed: None,
            shared: false,
            identity: None,
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.step(&request.key, |record, now| steps::claim(record, request, now))
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        self.step(&request.owner.key, |record, now| steps::renew(record, request, now))
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        self.step(&request.owner.key, |record, now| steps::complete(record, request, now))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        self.step(&request.owner.key, |record, now| steps::release(record, request, now))
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        self.step(&request.owner.key, |record, now| steps::abandon(record, request, now))
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let each = |it: &ClaimRequest| self.step(&it.key, |at, now| steps::claim(at, it, now));
        requests.iter().map(each).collect()
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        let each =
            |it: &RenewRequest| self.step(&it.owner.key, |at, now| steps::renew(at, it, now));
        requests.iter().map(each).collect()
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        let each =
            |it: &CompleteRequest| self.step(&it.owner.key, |at, now| steps::complete(at, it, now));
        requests.iter().map(each).collect()
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        let each =
            |it: &ReleaseRequest| self.step(&it.owner.key, |at, now| steps::release(at, it, now));
        requests.iter().map(each).collect()
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        self.step(&request.key, |record, now| steps::resolve(record, request, now))
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        self.step(key, steps::erase)
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        self.step(key, steps::forget)
    }

    async fn purge(&self, limit: usize) -> Result<Purged> {
        let mut inner = self.inner.lock();
        let now = self.clock.now();
        let due = inner.records.values().filter(|it| it.due_at().is_some_and(|at| at <= now));
        let due: Vec<_> = due.take(limit).map(|it| (it.key, steps::purge(it, now))).collect();
        let mut purged = Purged::default();
        for (key, change) in due {
            match &change {
                Change::Keep => {}
                Change::Put(_) => purged.held += 1,
                Change::Delete => purged.deleted += 1,
            }
            inner.change(key, change);
        }
        self.written(&mut inner)?;
        Ok(purged)
    }

    async fn lead(&self, _: Duration) -> Result<bool> {
        Ok(true)
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        let (inner, at) = (self.inner.lock(), self.clock.now());
        let record = inner.records.get(key).cloned();
        Ok(record.filter(|it| !it.is_expired(at)).map(|record| Sighting { record, at }))
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        let (inner, now) = (self.inner.lock(), self.clock.now());
        let wanted = |it: &&Record| {
            query.after.is_none_or(|after| it.key > after)
                && !it.is_expired(now)
                && query.matches(it)
        };
        Ok(inner.records.values().filter(wanted).take(query.limit).cloned().collect())
    }

    async fn stats(&self) -> Result<Stats> {
        let inner = self.inner.lock();
        let count = |state| inner.records.values().filter(|it| it.state == state).count() as u64;
        let (unknown, dead) = (count(State::Unknown), count(State::Dead));
        Ok(Stats { records: inner.records.len() as u64, unknown, dead })
    }
}
