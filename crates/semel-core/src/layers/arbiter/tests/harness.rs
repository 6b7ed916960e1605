//! An arbiter over a front and an authority that the tests can make fail.

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

/// The modes of a [`FaultyFront`].
pub(super) const UP: u8 = 0;
pub(super) const DOWN: u8 = 1;
pub(super) const SILENT: u8 = 2;
/// Fails the next removal, and is up after it.
pub(super) const FAILS_ONE_REMOVAL: u8 = 3;
pub(super) const FULL: u8 = 4;

/// A front that fails as its mode says, and counts its calls.
#[derive(Clone, Debug)]
pub(super) struct FaultyFront {
    pub(super) cache: MemoryReplicaCache,
    pub(super) mode: Arc<AtomicU8>,
    pub(super) calls: Arc<AtomicUsize>,
}

impl FaultyFront {
    async fn fail_by_mode(&self) -> Result<()> {
        self.calls.fetch_add(1, SeqCst);
        match self.mode.load(SeqCst) {
            UP | FAILS_ONE_REMOVAL => Ok(()),
            DOWN => Err(Error::new(ErrorKind::Unavailable, "the front is down")),
            FULL => Err(Error::new(ErrorKind::Full, "the front is full")),
            _ => pending().await,
        }
    }
}

#[async_trait]
impl ReplicaCache for FaultyFront {
    fn name(&self) -> &'static str {
        "faulty"
    }
    fn change_feed(&self) -> Option<ChangeFeed> {
        self.cache.change_feed()
    }
    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Replica>>> {
        match self.fail_by_mode().await {
            Ok(()) => self.cache.look(keys).await,
            Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        }
    }
    async fn put(&self, copies: &[Replica], called_at: Instant) -> Vec<Result<()>> {
        match self.fail_by_mode().await {
            Ok(()) => self.cache.put(copies, called_at).await,
            Err(error) => copies.iter().map(|_| Err(error.clone())).collect(),
        }
    }
    async fn remove(&self, key: &KeyHash) -> Result<bool> {
        self.fail_by_mode().await?;
        if self.mode.compare_exchange(FAILS_ONE_REMOVAL, UP, SeqCst, SeqCst).is_ok() {
            return Err(Error::new(ErrorKind::Unavailable, "the front fails one removal"));
        }
        self.cache.remove(key).await
    }
}

/// An authority that can be down, and at which other nodes act at given moments.
#[derive(Clone, Debug)]
pub(super) struct FaultyAuthority {
    pub(super) store: MemoryStore,
    pub(super) down: Arc<AtomicBool>,
    /// Another node forgets key 1 just before this one does.
    pub(super) is_forgotten_first: Arc<AtomicBool>,
    /// Another node writes this replica to the front just before the next step.
    pub(super) write_before_step: Arc<Mutex<Option<Replica>>>,
    pub(super) front: MemoryReplicaCache,
    /// The steps it got, each with whether the front had a copy of key 1 then.
    pub(super) steps: Arc<Mutex<Vec<(&'static str, bool)>>>,
}

trait AuthorityDown {
    fn down() -> Self;
}

impl<T> AuthorityDown for Result<T> {
    fn down() -> Self {
        Err(Error::new(ErrorKind::Unavailable, "the authority is down"))
    }
}

impl<T> AuthorityDown for Vec<Result<T>> {
    fn down() -> Self {
        // Every batch of these tests has two items.
        vec![Result::down(), Result::down()]
    }
}

macro_rules! faulty_authority {
    ($($step:ident($request:ty) -> $reply:ty;)*) => {
        #[async_trait]
        impl Store for FaultyAuthority {
            fn info(&self) -> StoreInfo {
                self.store.info()
            }
            $(async fn $step(&self, request: $request) -> $reply {
                let copied = self.front.look(&[key(1)]).await.pop().unwrap().unwrap().is_some();
                self.steps.lock().push((stringify!($step), copied));
                let replica = self.write_before_step.lock().take();
                if let Some(replica) = replica {
                    self.front.put(&[replica], Instant::now()).await;
                }
                if stringify!($step) == "forget" && self.is_forgotten_first.load(SeqCst) {
                    assert_eq!(self.store.forget(&key(1)).await.unwrap(), Forgetting::Forgotten);
                }
                match self.down.load(SeqCst) {
                    true => AuthorityDown::down(),
                    false => self.store.$step(request).await,
                }
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}
crate::__store_steps!(faulty_authority);

pub(super) struct ArbiterTest {
    pub(super) store: Arbiter<FaultyFront, FaultyAuthority>,
    pub(super) front: FaultyFront,
    pub(super) authority: FaultyAuthority,
    pub(super) clock: ManualClock,
}

pub(super) fn arbiter_test() -> ArbiterTest {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let cache = MemoryReplicaCache::with_clock(clock.clone());
    let authority = FaultyAuthority {
        store,
        down: Arc::default(),
        is_forgotten_first: Arc::default(),
        write_before_step: Arc::default(),
        front: cache.clone(),
        steps: Arc::default(),
    };
    let front = FaultyFront { cache, mode: Arc::default(), calls: Arc::default() };
    ArbiterTest { store: Arbiter::new(front.clone(), authority.clone()), front, authority, clock }
}

pub(super) fn key(byte: u8) -> KeyHash {
    KeyHash::from_bytes([byte; 32])
}

pub(super) fn request(byte: u8, content: &str) -> ClaimRequest {
    let terms = Terms {
        lease: Span::from_millis(30_000),
        on_lost_owner: OnLostOwner::Rerun,
        max_attempts: None,
        retention: RETENTION.into(),
        failure_retention: RETENTION.into(),
    };
    ClaimRequest {
        key: key(byte),
        fingerprint: Fingerprint::of_bytes(content.as_bytes()),
        nonce: Nonce::random(),
        terms,
        labels: None,
    }
}

pub(super) fn completion(lease: &Lease, value: &str) -> CompleteRequest {
    let outcome = Arc::new(Outcome::success(value.to_owned()));
    CompleteRequest { owner: lease.owner, outcome }
}

impl ArbiterTest {
    pub(super) async fn granted(&self, byte: u8) -> Lease {
        match self.store.claim(&request(byte, "a")).await.unwrap() {
            Claim::Granted(lease) => lease,
            claim => panic!("{claim:?}"),
        }
    }

    pub(super) async fn complete(&self, byte: u8) {
        let lease = self.granted(byte).await;
        let reply = self.store.complete(&completion(&lease, "done")).await.unwrap();
        assert_eq!(reply, Completion::Recorded);
    }

    pub(super) async fn replay(&self, byte: u8) -> Replay {
        match self.store.claim(&request(byte, "a")).await.unwrap() {
            Claim::Replay(replay) => replay,
            claim => panic!("{claim:?}"),
        }
    }

    pub(super) fn set_front(&self, mode: u8) {
        self.front.mode.store(mode, SeqCst);
    }

    pub(super) fn set_authority_down(&self, down: bool) {
        self.authority.down.store(down, SeqCst);
    }

    pub(super) async fn is_copied(&self, byte: u8) -> bool {
        self.front.cache.look(&[key(byte)]).await.pop().unwrap().unwrap().is_some()
    }
}
