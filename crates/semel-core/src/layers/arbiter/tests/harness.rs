//! A front and an authority that can be switched off, and an arbiter over both.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{
    Arbiter, ChangeFeed, Claim, ClaimRequest, CompleteRequest, Completion, Error, ErrorKind,
    Fingerprint, Forgetting, KeyHash, Lease, ManualClock, MemoryReplicaCache, MemoryStore, Nonce,
    OnLostOwner, Outcome, Replay, Replica, ReplicaCache, Result, Span, Stats, Store, StoreInfo,
    Terms, sync::Mutex,
};

pub(super) const RETENTION: Duration = Duration::from_secs(3600);

/// How a front behaves.
pub(super) const UP: u8 = 0;
pub(super) const DOWN: u8 = 1;
pub(super) const SILENT: u8 = 2;
/// Fails the next removal, and is up again.
pub(super) const BLINKS: u8 = 3;
pub(super) const FULL: u8 = 4;

/// A front that can be switched off, and counts who asks.
#[derive(Clone, Debug)]
pub(super) struct Shaky {
    pub(super) cache: MemoryReplicaCache,
    pub(super) mode: Arc<AtomicU8>,
    pub(super) asked: Arc<AtomicUsize>,
}

impl Shaky {
    async fn trouble(&self) -> Result<()> {
        self.asked.fetch_add(1, SeqCst);
        match self.mode.load(SeqCst) {
            UP | BLINKS => Ok(()),
            DOWN => Err(Error::new(ErrorKind::Unavailable, "the front is gone")),
            FULL => Err(Error::new(ErrorKind::Full, "the front is full")),
            _ => pending().await,
        }
    }
}

#[async_trait]
impl ReplicaCache for Shaky {
    fn name(&self) -> &'static str {
        "shaky"
    }
    fn change_feed(&self) -> Option<ChangeFeed> {
        self.cache.change_feed()
    }
    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Replica>>> {
        match self.trouble().await {
            Ok(()) => self.cache.look(keys).await,
            Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        }
    }
    async fn put(&self, copies: &[Replica], asked: Instant) -> Vec<Result<()>> {
        match self.trouble().await {
            Ok(()) => self.cache.put(copies, asked).await,
            Err(error) => copies.iter().map(|_| Err(error.clone())).collect(),
        }
    }
    async fn remove(&self, key: &KeyHash) -> Result<bool> {
        self.trouble().await?;
        if self.mode.compare_exchange(BLINKS, UP, SeqCst, SeqCst).is_ok() {
            return Err(Error::new(ErrorKind::Unavailable, "the front blinks"));
        }
        self.cache.remove(key).await
    }
}

/// An authority that can be switched off.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    pub(super) store: MemoryStore,
    pub(super) down: Arc<AtomicBool>,
    /// Another node forgets key 1 right before this one does.
    pub(super) is_forestalled: Arc<AtomicBool>,
    /// Another node records an outcome right before this one looks for it in vain.
    pub(super) late: Arc<Mutex<Option<Replica>>>,
    pub(super) front: MemoryReplicaCache,
    /// What it was asked, and whether the front had a copy of key 1 then.
    pub(super) asked: Arc<Mutex<Vec<(&'static str, bool)>>>,
}

trait Fails {
    fn failed() -> Self;
}

impl<T> Fails for Result<T> {
    fn failed() -> Self {
        Err(Error::new(ErrorKind::Unavailable, "the authority is gone"))
    }
}

impl<T> Fails for Vec<Result<T>> {
    fn failed() -> Self {
        // Every batch of these tests has two.
        vec![Result::failed(), Result::failed()]
    }
}

macro_rules! judged {
    ($($step:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Judge {
            fn info(&self) -> StoreInfo {
                self.store.info()
            }
            $(async fn $step(&self, request: $request) -> $answer {
                let copied = self.front.look(&[key(1)]).await.pop().unwrap().unwrap().is_some();
                self.asked.lock().push((stringify!($step), copied));
                let late = self.late.lock().take();
                if let Some(late) = late {
                    self.front.put(&[late], Instant::now()).await;
                }
                if stringify!($step) == "forget" && self.is_forestalled.load(SeqCst) {
                    assert_eq!(self.store.forget(&key(1)).await.unwrap(), Forgetting::Forgotten);
                }
                match self.down.load(SeqCst) {
                    true => Fails::failed(),
                    false => self.store.$step(request).await,
                }
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}
crate::__store_steps!(judged);

pub(super) struct Scene {
    pub(super) store: Arbiter<Shaky, Judge>,
    pub(super) front: Shaky,
    pub(super) judge: Judge,
    pub(super) clock: ManualClock,
}

pub(super) fn scene() -> Scene {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let cache = MemoryReplicaCache::with_clock(clock.clone());
    let judge = Judge {
        store,
        down: Arc::default(),
        is_forestalled: Arc::default(),
        late: Arc::default(),
        front: cache.clone(),
        asked: Arc::default(),
    };
    let front = Shaky { cache, mode: Arc::default(), asked: Arc::default() };
    Scene { store: Arbiter::new(front.clone(), judge.clone()), front, judge, clock }
}

pub(super) fn key(byte: u8) -> KeyHash {
    KeyHash::from_bytes([byte; 32])
}

pub(super) fn request(byte: u8, asked: &str) -> ClaimRequest {
    let terms = Terms {
        lease: Span::from_millis(30_000),
        on_lost_owner: OnLostOwner::Rerun,
        max_attempts: None,
        retention: RETENTION.into(),
        failure_retention: RETENTION.into(),
    };
    ClaimRequest {
        key: key(byte),
        fingerprint: Fingerprint::of_bytes(asked.as_bytes()),
        nonce: Nonce::random(),
        terms,
        labels: None,
    }
}

pub(super) fn completion(lease: &Lease, said: &str) -> CompleteRequest {
    let outcome = Arc::new(Outcome::success(said.to_owned()));
    CompleteRequest { owner: lease.owner, outcome }
}

impl Scene {
    pub(super) async fn granted(&self, byte: u8) -> Lease {
        match self.store.claim(&request(byte, "a")).await.unwrap() {
            Claim::Granted(lease) => lease,
            claim => panic!("{claim:?}"),
        }
    }

    pub(super) async fn complete(&self, byte: u8) {
        let lease = self.granted(byte).await;
        let said = self.store.complete(&completion(&lease, "done")).await.unwrap();
        assert_eq!(said, Completion::Recorded);
    }

    pub(super) async fn replay(&self, byte: u8) -> Replay {
        match self.store.claim(&request(byte, "a")).await.unwrap() {
            Claim::Replay(replay) => replay,
            claim => panic!("{claim:?}"),
        }
    }

    pub(super) fn set(&self, mode: u8) {
        self.front.mode.store(mode, SeqCst);
    }

    pub(super) fn stop_judge(&self, down: bool) {
        self.judge.down.store(down, SeqCst);
    }

    pub(super) async fn is_copied(&self, byte: u8) -> bool {
        self.front.cache.look(&[key(byte)]).await.pop().unwrap().unwrap().is_some()
    }
}
