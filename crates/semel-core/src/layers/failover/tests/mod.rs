//! What a failover protects, and that it counts what it cannot.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod late_primary_reply;
mod window;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;

use super::*;
use crate::{
    Claim, ClaimRequest, Clock, CompleteRequest, Completion, Effect, Erasure, Error, ErrorKind,
    Fingerprint, Forgetting, HashSecret, KeyHash, Lease, ListQuery, ManualClock, MemoryStore,
    Nonce, OnLostOwner, Outcome, ReleaseRequest, RenewRequest, Renewal, Result, Span, State, Stats,
    StoreInfo, Terms, Timestamp, sync::Mutex,
};

const RETENTION: Duration = Duration::from_secs(3600);

/// One server that nodes share, and one node's way to it.
#[derive(Clone, Debug)]
struct Way {
    store: MemoryStore,
    /// When the secondary need not be asked any more.
    until: Arc<Mutex<Timestamp>>,
    clock: ManualClock,
    /// This node cannot reach it.
    cut: Arc<AtomicBool>,
    /// This node's claims are long on their way.
    stalled: Arc<AtomicBool>,
    /// So many came to wait.
    waiting: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Way {
    fn new(clock: &ManualClock) -> Self {
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let (until, clock) = (Arc::default(), clock.clone());
        let (cut, stalled, waiting, asked) = Default::default();
        Self { store, until, clock, cut, stalled, waiting, asked }
    }

    /// Another node's way to the same server.
    fn of_another(&self) -> Self {
        let (cut, stalled, waiting, asked) = Default::default();
        Self { cut, stalled, waiting, asked, ..self.clone() }
    }

    async fn arrive(&self, step: &str) {
        if !step.starts_with("claim") {
            return;
        }
        self.waiting.fetch_add(1, SeqCst);
        while self.stalled.load(SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn is_cut(&self) -> bool {
        self.asked.fetch_add(1, SeqCst);
        self.cut.load(SeqCst)
    }
}

trait Fails {
    fn failed() -> Self;
}

impl<T> Fails for Result<T> {
    fn failed() -> Self {
        Err(Error::new(ErrorKind::Unavailable, "unreachable"))
    }
}

impl<T> Fails for Vec<Result<T>> {
    fn failed() -> Self {
        vec![Result::failed()]
    }
}

macro_rules! way {
    ($($step:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Way {
            fn info(&self) -> StoreInfo {
                self.store.info()
            }
            $(async fn $step(&self, request: $request) -> $answer {
                self.arrive(stringify!($step)).await;
                match self.is_cut() {
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
crate::__store_steps!(way);

#[async_trait]
impl FailbackWindow for Way {
    async fn remaining(&self) -> Result<Option<Duration>> {
        if self.cut.load(SeqCst) {
            return Fails::failed();
        }
        let until = *self.until.lock();
        Ok((until > Timestamp::default()).then(|| until.since(self.clock.now())))
    }

    async fn extend_to(&self, span: Duration) -> Result<Duration> {
        if self.cut.load(SeqCst) {
            return Fails::failed();
        }
        let mut until = self.until.lock();
        *until = (*until).max(self.clock.now().after(span));
        Ok(until.since(self.clock.now()))
    }
}

struct Node {
    store: Failover<Way, Way>,
    primary: Way,
    secondary: Way,
}

impl Node {
    fn new(primary: Way, secondary: Way) -> Self {
        let store = Failover::builder(primary.clone(), secondary.clone())
            .allow_duplicate_execution_on_failover(true)
            .build()
            .unwrap();
        Self { store, primary, secondary }
    }

    fn alone() -> Self {
        let clock = ManualClock::new();
        Self::new(Way::new(&clock), Way::new(&clock))
    }

    /// One that knows that the secondary has nothing.
    async fn idle() -> Self {
        let node = Self::alone();
        node.knows(false).await;
        node
    }

    fn twin(&self) -> Self {
        Self::new(self.primary.of_another(), self.secondary.of_another())
    }

    async fn claim(&self, byte: u8) -> Claim {
        self.store.claim(&request(byte)).await.unwrap()
    }

    async fn granted(&self, byte: u8) -> Lease {
        match self.claim(byte).await {
            Claim::Granted(lease) => lease,
            claim => panic!("{claim:?}"),
        }
    }

    async fn complete(&self, byte: u8) {
        let owner = self.granted(byte).await.owner;
        let outcome = Arc::new(Outcome::success("done"));
        let said = self.store.complete(&CompleteRequest { owner, outcome }).await.unwrap();
        assert_eq!(said, Completion::Recorded);
    }

    async fn replays(&self, byte: u8) {
        let claim = self.claim(byte).await;
        assert!(matches!(claim, Claim::Replay(_)), "{claim:?}");
    }

    fn unprotected(&self) -> (u64, u64) {
        let counts = self.store.unprotected();
        (counts.primary_unreachable, counts.secondary_unasked)
    }

    /// Waits until the primary is used again.
    async fn back(&self) {
        self.primary.cut.store(false, SeqCst);
        until("the circuit closes", async || !self.store.0.primary_circuit.is_open()).await;
    }

    /// Waits until the node has read that nobody need be asked, or that somebody must.
    async fn knows(&self, must_read_secondary: bool) {
        until("the epoch is read", async || {
            self.store.0.window.must_read_secondary() == must_read_secondary
        })
        .await;
    }

    /// As if the owner had worked for as long as the secondary was to be asked.
    fn nearly_closed(&self) {
        *self.secondary.until.lock() = self.secondary.clock.now().after(Duration::from_secs(1));
        self.store.0.window.update(Duration::from_secs(1), Instant::now());
    }

    /// How long all nodes will ask the secondary.
    fn window(&self) -> Duration {
        self.secondary.until.lock().since(self.secondary.clock.now())
    }

    async fn on_primary(&self, byte: u8) -> Option<State> {
        let seen = self.primary.store.get(&key(byte)).await.unwrap();
        seen.map(|seen| seen.record.state)
    }
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn key(byte: u8) -> KeyHash {
    KeyHash::from_bytes([byte; 32])
}

fn request(byte: u8) -> ClaimRequest {
    let terms = Terms {
        lease: Span::from_millis(30_000),
        on_lost_owner: OnLostOwner::Rerun,
        max_attempts: None,
        retention: RETENTION.into(),
        failure_retention: RETENTION.into(),
    };
    let (fingerprint, nonce) = (Fingerprint::of_bytes(b"this"), Nonce::random());
    ClaimRequest { key: key(byte), fingerprint, nonce, terms, labels: None }
}

#[test]
fn nobody_fails_over_without_saying_so() {
    let clock = ManualClock::new();
    let refused = Failover::builder(Way::new(&clock), Way::new(&clock)).build().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    for word in ["run twice", "allow_duplicate_execution_on_failover", "--front"] {
        assert!(refused.to_string().contains(word), "{refused}");
    }
}

#[derive(Debug)]
struct Secretive(Way, HashSecret);

macro_rules! secretive {
    ($($step:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Secretive {
            fn info(&self) -> StoreInfo {
                StoreInfo { hash_secret: Some(self.1.clone()), ..self.0.info() }
            }
            $(async fn $step(&self, request: $request) -> $answer {
                self.0.$step(request).await
            })*
            async fn stats(&self) -> Result<Stats> {
                self.0.stats().await
            }
        }
    };
}
crate::__store_steps!(secretive);

#[test]
fn two_stores_with_two_secrets_know_no_key_of_each_other() {
    let clock = ManualClock::new();
    let primary = Secretive(Way::new(&clock), HashSecret::random());
    let built = Failover::builder(primary, Way::new(&clock))
        .allow_duplicate_execution_on_failover(true)
        .build();
    assert!(built.unwrap_err().to_string().contains("different secrets"));
}

#[tokio::test]
async fn the_primary_alone_is_asked_while_all_is_well() {
    let node = Node::alone();
    node.knows(false).await;
    let before = node.secondary.asked.load(SeqCst);
    node.complete(1).await;
    node.replays(1).await;
    assert_eq!(node.secondary.asked.load(SeqCst), before);
    assert_eq!(node.unprotected(), (0, 0));
}

#[tokio::test]
async fn the_secondary_serves_while_the_primary_is_gone_and_each_key_is_counted() {
    let node = Node::alone();
    node.primary.cut.store(true, SeqCst);
    for byte in 1..=9 {
        node.complete(byte).await;
        node.replays(byte).await;
    }
    assert_eq!(node.unprotected(), (9, 0), "replays protect, and are not counted");
    let asked = node.primary.asked.load(SeqCst);
    assert!(asked < 9, "a primary that is gone is not asked for every key: {asked}");
}

#[tokio::test]
async fn what_the_secondary_served_is_known_after_the_primary_is_back() {
    let node = Node::alone();
    let twin = node.twin();
    node.primary.cut.store(true, SeqCst);
    node.complete(1).await;
    let owner = node.granted(2).await.owner;
    node.back().await;
    twin.knows(true).await;
    for node in [&node, &twin] {
        node.replays(1).await;
        assert!(matches!(node.claim(2).await, Claim::Busy { .. }));
    }
    let renewed = node.store.renew(&RenewRequest { owner, max_run: RETENTION }).await.unwrap();
    assert_eq!(renewed, Renewal::Extended, "its owner goes on where it was granted");
    assert_eq!(node.unprotected(), (2, 0));
    assert_eq!(twin.unprotected(), (0, 0));
}

#[tokio::test]
async fn a_node_that_starts_later_asks_too() {
    let node = Node::alone();
    node.primary.cut.store(true, SeqCst);
    node.complete(1).await;
    let late = node.twin();
    late.replays(1).await;
    assert_eq!(late.unprotected(), (0, 0));
}

#[tokio::test]
async fn nobody_asks_any_more_when_all_that_was_served_has_expired() {
    let node = Node::alone();
    node.primary.cut.store(true, SeqCst);
    node.complete(1).await;
    node.back().await;
    node.primary.clock.advance(RETENTION);
    node.knows(true).await;
    node.primary.clock.advance(Duration::from_secs(3600));
    let late = node.twin();
    late.knows(false).await;
    late.granted(1).await;
}

#[tokio::test]
async fn one_node_that_is_cut_runs_twice_what_the_other_ran_and_counts_it() {
    let node = Node::alone();
    let cut = node.twin();
    node.knows(false).await;
    node.complete(1).await;
    cut.primary.cut.store(true, SeqCst);
    cut.complete(1).await;
    assert_eq!(cut.unprotected(), (1, 0));
    node.knows(true).await;
    cut.complete(2).await;
    node.replays(2).await;
    assert_eq!(node.unprotected(), (0, 0));
}

#[tokio::test]
async fn without_the_secondary_the_primary_serves_and_each_new_key_is_counted() {
    let clock = ManualClock::new();
    let secondary = Way::new(&clock);
    secondary.cut.store(true, SeqCst);
    // Nobody can tell it whether it has to ask.
    let node = Node::new(Way::new(&clock), secondary);
    for byte in 1..=9 {
        node.complete(byte).await;
        node.replays(byte).await;
    }
    assert_eq!(node.unprotected(), (0, 9));
}

#[tokio::test]
async fn without_both_new_keys_fail() {
    let node = Node::alone();
    node.primary.cut.store(true, SeqCst);
    node.secondary.cut.store(true, SeqCst);
    let error = node.store.claim(&request(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_key_given_back_on_the_secondary_is_the_primarys_again() {
    let node = Node::alone();
    node.primary.cut.store(true, SeqCst);
    let owner = node.granted(1).await.owner;
    node.store.release(&ReleaseRequest { owner, effect: Effect::None }).await.unwrap();
    node.back().await;
    node.complete(1).await;
    assert!(node.primary.store.get(&key(1)).await.unwrap().is_some());
    node.replays(1).await;
    assert_eq!(node.unprotected(), (1, 0));
}

#[tokio::test]
async fn an_owner_that_nobody_remembers_is_found() {
    let node = Node::alone();
    node.primary.cut.store(true, SeqCst);
    let owner = node.granted(1).await.owner;
    node.back().await;
    let twin = node.twin();
    let outcome = Arc::new(Outcome::success("done"));
    let said = twin.store.complete(&CompleteRequest { owner, outcome }).await.unwrap();
    assert_eq!(said, Completion::Recorded);
}

#[tokio::test]
async fn what_an_operator_erases_or_forgets_is_gone_from_both() {
    let node = Node::alone();
    node.complete(1).await;
    node.complete(2).await;
    node.primary.cut.store(true, SeqCst);
    node.complete(2).await;
    let half = node.store.erase(&key(1)).await.unwrap_err();
    assert!(half.to_string().contains("half done"), "{half}");
    node.back().await;
    assert_eq!(node.store.erase(&key(1)).await.unwrap(), Erasure::Erased);
    assert_eq!(node.claim(1).await, Claim::Gone);
    assert_eq!(node.store.forget(&key(2)).await.unwrap(), Forgetting::Forgotten);
    assert_eq!(node.store.forget(&key(2)).await.unwrap(), Forgetting::Missing);
    node.granted(2).await;
}

#[tokio::test]
async fn both_are_listed_once() {
    let node = Node::alone();
    for byte in [1, 3] {
        node.complete(byte).await;
    }
    node.primary.cut.store(true, SeqCst);
    for byte in [2, 3] {
        node.complete(byte).await;
    }
    node.back().await;
    let page = node.store.list(&ListQuery::default()).await.unwrap();
    assert_eq!(page.iter().map(|it| it.key).collect::<Vec<_>>(), [key(1), key(2), key(3)]);
    let two = ListQuery { limit: 2, ..ListQuery::default() };
    assert_eq!(node.store.list(&two).await.unwrap().len(), 2);
}
