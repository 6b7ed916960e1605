//! `impl Store`: replies from the index when nothing changes, and sends all other requests to the writer.

use std::{
    fmt,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use hashbrown::HashSet;
use parking_lot::Mutex;
use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Durability,
    Erasure, Error, ErrorKind, Forgetting, HashSecret, KeyHash, ListQuery, Purged, Record, Release,
    ReleaseRequest, RenewRequest, Renewal, Resolution, ResolveRequest, Result, Sighting, Stats,
    Store, StoreInfo, Timestamp,
    steps::{self, Change, Step},
};
use semel_remote::batch::{BatchLimits, Batcher};
use tokio::runtime::Handle;

use crate::{
    EmbeddedStoreBuilder,
    clock::MonotonicClock,
    disk::Folder,
    folder_watch::FolderWatch,
    hash_secret::agreed,
    index::{Index, KeyHasher},
    log::{Filling, Location, Segments},
    open::{OpenedFolder, open},
    request::{WriterReply, WriterRequest},
    writer::{LogWriter, decode, max_outcome, read},
};

/// Keeps records in a folder. Clones share one store; the folder is unlocked when the last one is dropped.
///
/// ```
/// use semel_store_embedded::EmbeddedStore;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("semel-data");
/// let store = EmbeddedStore::open(&path)?;
/// assert!(EmbeddedStore::open(&path).unwrap_err().to_string().contains("another process"));
/// # drop(store);
/// # Ok::<(), semel_core::Error>(())
/// ```
#[derive(Clone)]
pub struct EmbeddedStore(Arc<EmbeddedInner>);

struct EmbeddedInner {
    index: Arc<Index>,
    segments: Arc<Segments>,
    clock: MonotonicClock,
    secret: HashSecret,
    max_outcome_bytes: usize,
    calls: Batcher<WriterRequest, Result<WriterReply>>,
    watch: FolderWatch,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl EmbeddedStore {
    /// Opens a folder with the default settings, or makes it.
    ///
    /// # Errors
    ///
    /// As [`EmbeddedStoreBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    /// Settings for the store in this folder.
    pub fn builder(path: impl AsRef<Path>) -> EmbeddedStoreBuilder {
        EmbeddedStoreBuilder::new(path.as_ref().to_owned())
    }

    pub(crate) fn from_config(config: EmbeddedStoreBuilder) -> Result<Self> {
        let folder = Arc::new(Folder::open(&config.path)?);
        let mut opened = open(folder.clone(), config.segment_bytes, Filling::Ahead, config.clock)?;
        let (own, records) = (opened.identity.secret, opened.index.counts().records);
        opened.identity.secret = agreed(&*folder, own, config.hash_secret, records)?;
        Self::start(opened, config.limits)
    }

    pub(crate) fn start(opened: OpenedFolder, limits: BatchLimits) -> Result<Self> {
        let OpenedFolder { identity, index, segments, clock, writer } = opened;
        let max_outcome_bytes = max_outcome(writer.log.max_batch());
        let watch = FolderWatch::start(segments.clone())?;
        let (calls, batches) = Batcher::new(limits);
        let work = move || LogWriter::run(writer, batches);
        let thread = thread::Builder::new().name("semel-writer".into()).spawn(work);
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "embedded store: cannot start its writer")
                .with_source(error)
        })?;
        let (secret, writer) = (identity.secret, Mutex::new(Some(thread)));
        let inner = EmbeddedInner {
            index,
            segments,
            clock,
            secret,
            max_outcome_bytes,
            calls,
            watch,
            writer,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Replies to a claim that changes nothing: a replay, a mismatch, a busy key.
    async fn answer_at_once(&self, request: &ClaimRequest) -> Result<Option<Claim>> {
        let step = |record: &Record, now| unchanged(steps::claim(Some(record), request, now));
        Ok(self.see(&request.key, step).await?.flatten())
    }

    /// Calls `look` with a key's durable record, unless there is none or it has expired.
    async fn see<T>(
        &self,
        key: &KeyHash,
        look: impl Fn(&Record, Timestamp) -> T,
    ) -> Result<Option<T>> {
        self.0.watch.check()?;
        loop {
            let (location, now) = match self.0.look(key, &look) {
                Lookup::Missing => return Ok(None),
                Lookup::InMemory(seen) => return Ok(Some(seen)),
                Lookup::OnDisk(location, now) => (location, now),
            };
            let bytes = match self.0.segments.read_at_once(location)? {
                Some(bytes) => Some(bytes),
                // Boxed, so that the common future stays small.
                None => Box::pin(self.read(location)).await?,
            };
            // Compaction has moved the record meanwhile: look it up again.
            if let Some(bytes) = bytes {
                return Ok(Some(look(&decode(key, &bytes)?, now)));
            }
        }
    }

    /// Reads a record's bytes on a blocking thread.
    async fn read(&self, location: Location) -> Result<Option<Bytes>> {
        let segments = self.0.segments.clone();
        blocking(move || segments.read(location)).await?
    }

    async fn call(&self, call: WriterRequest) -> Result<WriterReply> {
        self.0.watch.check()?;
        self.0.calls.call(call).await?
    }

    async fn call_all(&self, calls: Vec<WriterRequest>) -> Vec<Result<WriterReply>> {
        let count = calls.len();
        let answers = match self.0.watch.check() {
            Ok(()) => self.0.calls.call_all(calls).await,
            lost => lost.map(|()| Vec::new()),
        };
        answers.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
    }
}

enum Lookup<T> {
    Missing,
    InMemory(T),
    OnDisk(Location, Timestamp),
}

fn unchanged(step: Step<Claim>) -> Option<Claim> {
    matches!(step.change, Change::Keep).then_some(step.answer)
}

/// Runs work that waits for the disk on a blocking thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let Ok(runtime) = Handle::try_current() else { return Ok(work()) };
    runtime.spawn_blocking(work).await.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "embedded store: a read did not come to its end")
            .with_source(error)
    })
}

impl EmbeddedInner {
    /// Up to a page of records, in the order of their keys.
    fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        let mut page = Vec::new();
        for shard in self.index.shards_from(query.after.as_ref()) {
            let now = self.clock.now();
            let mut keys: Vec<KeyHash> = {
                let shard = shard.lock();
                let live = shard.slots().filter(|slot| !slot.is_expired(now));
                live.map(|slot| slot.key)
                    .filter(|key| query.after.is_none_or(|a| *key > a))
                    .collect()
            };
            keys.sort_unstable();
            for key in keys {
                if page.len() == query.limit {
                    return Ok(page);
                }
                match self.get(&key) {
                    // An unreadable record must not hide the others.
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        tracing::error!(%key, %error, "embedded store: left out of a list");
                    }
                    record => page.extend(record?.filter(|record| query.matches(record))),
                }
            }
        }
        Ok(page)
    }

    fn get(&self, key: &KeyHash) -> Result<Option<Record>> {
        loop {
            match self.look(key, |record, _| record.clone()) {
                Lookup::Missing => return Ok(None),
                Lookup::InMemory(record) => return Ok(Some(record)),
                Lookup::OnDisk(location, _) => {
                    if let Some(record) = read(&self.segments, key, location)? {
                        return Ok(Some(record));
                    }
                }
            }
        }
    }

    /// Calls `look` with a record that is in memory; otherwise returns its location.
    fn look<T>(&self, key: &KeyHash, look: impl Fn(&Record, Timestamp) -> T) -> Lookup<T> {
        let now = self.clock.now();
        self.index.look(key, |slot| match slot {
            Some(slot) if slot.is_expired(now) => Lookup::Missing,
            Some(slot) => match slot.record() {
                Some(record) => Lookup::InMemory(look(record, now)),
                None => Lookup::OnDisk(slot.location, now),
            },
            None => Lookup::Missing,
        })
    }
}

impl Drop for EmbeddedInner {
    fn drop(&mut self) {
        self.calls.close();
        let writer = self.writer.lock().take();
        // The writer's own thread may drop the last handle, together with a caller that it wakes.
        if let Some(writer) = writer.filter(|writer| writer.thread().id() != thread::current().id())
        {
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.0.index.counts().records;
        f.debug_struct("EmbeddedStore").field("records", &records).finish_non_exhaustive()
    }
}

/// Unwraps the writer's reply to a request of the same kind.
macro_rules! said {
    ($answer:expr, $kind:ident) => {
        $answer.map(|said| match said {
            WriterReply::$kind(answer) => answer,
            other => unreachable!("the writer said {other:?} to another kind of call"),
        })
    };
}

macro_rules! ask {
    ($self:ident, $kind:ident($request:expr)) => {
        said!($self.call(WriterRequest::$kind($request)).await, $kind)
    };
}

macro_rules! ask_all {
    ($self:ident, $kind:ident($requests:expr)) => {{
        let calls = $requests.iter().cloned().map(WriterRequest::$kind).collect();
        $self.call_all(calls).await.into_iter().map(|said| said!(said, $kind)).collect()
    }};
}

#[async_trait]
impl Store for EmbeddedStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            name: "embedded",
            durability: Durability::Durable,
            max_outcome_bytes: self.0.max_outcome_bytes,
            hash_secret: Some(self.0.secret.clone()),
            change_feed: None,
            shared: false,
            identity: None,
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        match self.answer_at_once(request).await? {
            Some(answer) => Ok(answer),
            None => ask!(self, Claim(request.clone())),
        }
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        ask!(self, Renew(*request))
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        ask!(self, Complete(request.clone()))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        ask!(self, Release(*request))
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        ask!(self, Abandon(*request))
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let mut answers = Vec::with_capacity(requests.len());
        let mut sent: HashSet<KeyHash, KeyHasher> = HashSet::default();
        let mut calls = Vec::new();
        for request in requests {
            // A second claim of a key that goes to the writer has to go there too, after the first.
            let at_once = match sent.contains(&request.key) {
                true => None,
                false => self.answer_at_once(request).await.transpose(),
            };
            if at_once.is_none() {
                sent.insert(request.key);
                calls.push(WriterRequest::Claim(request.clone()));
            }
            answers.push(at_once);
        }
        let mut said = self.call_all(calls).await.into_iter().map(|said| said!(said, Claim));
        let answer = |at_once: Option<_>| at_once.or_else(|| said.next()).expect("one per call");
        answers.into_iter().map(answer).collect()
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        ask_all!(self, Renew(requests))
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        ask_all!(self, Complete(requests))
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        ask_all!(self, Release(requests))
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        ask!(self, Resolve(request.clone()))
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        ask!(self, Erase(*key))
    }

    async fn purge(&self, limit: usize) -> Result<Purged> {
        ask!(self, Purge(limit))
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        ask!(self, Forget(*key))
    }

    async fn lead(&self, _: Duration) -> Result<bool> {
        Ok(true)
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        self.see(key, |record, at| Sighting { record: record.clone(), at }).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        self.0.watch.check()?;
        let (inner, query) = (self.0.clone(), query.clone());
        blocking(move || inner.list(&query)).await?
    }

    async fn stats(&self) -> Result<Stats> {
        self.0.watch.check()?;
        let counts = self.0.index.counts();
        Ok(Stats { records: counts.records, unknown: counts.unknown, dead: counts.dead })
    }
}
