//! Tests of the failover: which keys it protects, and that it counts those that it cannot protect.

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

/// One node's connection to a server that all nodes share.
#[derive(Clone, Debug)]
struct NodeConnection {
    store: MemoryStore,
    /// The end of the failback window.
    until: Arc<Mutex<Timestamp>>,
    clock: ManualClock,
    /// This node cannot reach the server.
    cut: Arc<AtomicBool>,
    /// This node's claims are delayed.
    stalled: Arc<AtomicBool>,
    /// The number of claims that arrived.
    waiting: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

impl NodeConnection {
    fn new(clock: &ManualClock) -> Self {
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let (until, clock) = (Arc::default(), clock.clone());
        let (cut, stalled, waiting, calls) = Default::default();
        Self { store, until, clock, cut, stalled, waiting, calls }
    }

    /// Another node's connection to the same server.
    fn for_another_node(&self) -> Self {
        let (cut, stalled, waiting, calls) = Default::default();
        Self { cut, stalled, waiting, calls, ..self.clone() }
    }

    async fn delay_claim(&self, step: &str) {
        if !step.starts_with("claim") {
            return;
        }
        self.waiting.fetch_add(1, SeqCst);
        while self.stalled.load(SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn is_cut(&self) -> bool {
        self.calls.fetch_add(1, SeqCst);
        self.cut.load(SeqCst)
    }
}

trait Unreachable {
    fn unreachable() -> Self;
}

impl<T> Unreachable for Result<T> {
    fn unreachable() -> Self {
        Err(Error::new(ErrorKind::Unavailable, "unreachable"))
    }
}

impl<T> Unreachable for Vec<Result<T>> {
    fn unreachable() -> Self {
        vec![Result::unreachable()]
    }
}

macro_rules! node_connection {
    ($($step:ident($request:ty) -> $reply:ty;)*) => {
        #[async_trait]
        impl Store for NodeConnection {
            fn info(&self) -> StoreInfo {
                self.store.info()
            }
            $(async fn $step(&self, request: $request) -> $reply {
                self.delay_claim(stringify!($step)).await;
                match self.is_cut() {
                    true => Unreachable::unreachable(),
                    false => self.store.$step(request).await,
                }
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}
crate::__store_steps!(node_connection);

#[async_trait]
impl FailbackWindow for NodeConnection {
    async fn remaining(&self) -> Result<Option<Duration>> {
        if self.cut.load(SeqCst) {
            return Unreachable::unreachable();
        }
        let until = *self.until.lock();
        Ok((until > Timestamp::default()).then(|| until.since(self.clock.now())))
    }

    async fn extend_to(&self, span: Duration) -> Result<Duration> {
        if self.cut.load(SeqCst) {
            return Unreachable::unreachable();
        }
        let mut until = self.until.lock();
        *until = (*until).max(self.clock.now().after(span));
        Ok(until.since(self.clock.now()))
    }
}

struct FailoverNode {
    store: Failover<NodeConnection, NodeConnection>,
    primary: NodeConnection,
    secondary: NodeConnection,
}

impl FailoverNode {
    fn new(primary: NodeConnection, secondary: NodeConnection) -> Self {
        let store = Failover::builder(primary.clone(), secondary.clone())
            .allow_duplicate_execution_on_failover(true)
            .build()
            .unwrap();
        Self { store, primary, secondary }
    }

    fn alone() -> Self {
        let clock = ManualClock::new();
        Self::new(NodeConnection::new(&clock), NodeConnection::new(&clock))
    }

    /// A node that has read that the failback window is closed.
    async fn with_closed_window() -> Self {
        let node = Self::alone();
        node.window_is_read(false).await;
        node
    }

    fn twin(&self) -> Self {
        Self::new(self.primary.for_another_node(), self.secondary.for_another_node())
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
        let reply = self.store.complete(&CompleteRequest { owner, outcome }).await.unwrap();
        assert_eq!(reply, Completion::Recorded);
    }

    async fn replays(&self, byte: u8) {
        let claim = self.claim(byte).await;
        assert!(matches!(claim, Claim::Replay(_)), "{claim:?}");
    }

    fn unprotected(&self) -> (u64, u64) {
        let counts = self.store.unprotected();
        (counts.primary_unreachable, counts.secondary_unasked)
    }

    /// Reconnects the primary, and waits until it is used again.
    async fn reconnect_primary(&self) {
        self.primary.cut.store(false, SeqCst);
        until("the circuit closes", async || !self.store.0.primary_circuit.is_open()).await;
    }

    /// Waits until the node has read that the failback window is open or closed.
    async fn window_is_read(&self, must_read_secondary: bool) {
        until("the window is read", async || {
            self.store.0.window.must_read_secondary() == must_read_secondary
        })
        .await;
    }

    /// Shortens the failback window, as if the owner had worked for nearly as long.
    fn shorten_window(&self) {
        *self.secondary.until.lock() = self.secondary.clock.now().after(Duration::from_secs(1));
        self.store.0.window.update(Duration::from_secs(1), Instant::now());
    }

    /// How long all nodes will read the secondary.
    fn window(&self) -> Duration {
        self.secondary.until.lock().since(self.secondary.clock.now())
    }

    async fn on_primary(&self, byte: u8) -> Option<State> {
        let sighting = self.primary.store.get(&key(byte)).await.unwrap();
        sighting.map(|sighting| sighting.record.state)
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
fn a_failover_needs_explicit_permission() {
    let clock = ManualClock::new();
    let refused = Failover::builder(NodeConnection::new(&clock), NodeConnection::new(&clock))
        .build()
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    for word in ["run twice", "allow_duplicate_execution_on_failover", "--front"] {
        assert!(refused.to_string().contains(word), "{refused}");
    }
}

#[derive(Debug)]
struct StoreWithSecret(NodeConnection, HashSecret);

macro_rules! store_with_secret {
    ($($step:ident($request:ty) -> $reply:ty;)*) => {
        #[async_trait]
        impl Store for StoreWithSecret {
            fn info(&self) -> StoreInfo {
                StoreInfo { hash_secret: Some(self.1.clone()), ..self.0.info() }
            }
            $(async fn $step(&self, request: $request) -> $reply {
                self.0.$step(request).await
            })*
            async fn stats(&self) -> Result<Stats> {
                self.0.stats().await
            }
        }
    };
}
crate::__store_steps!(store_with_secret);

#[test]
fn two_stores_with_different_secrets_are_refused() {
    let clock = ManualClock::new();
    let primary = StoreWithSecret(NodeConnection::new(&clock), HashSecret::random());
    let built = Failover::builder(primary, NodeConnection::new(&clock))
        .allow_duplicate_execution_on_failover(true)
        .build();
    assert!(built.unwrap_err().to_string().contains("different secrets"));
}

#[tokio::test]
async fn only_the_primary_is_called_while_it_replies_and_the_window_is_closed() {
    let node = FailoverNode::alone();
    node.window_is_read(false).await;
    let before = node.secondary.calls.load(SeqCst);
    node.complete(1).await;
    node.replays(1).await;
    assert_eq!(node.secondary.calls.load(SeqCst), before);
    assert_eq!(node.unprotected(), (0, 0));
}

#[tokio::test]
async fn the_secondary_serves_while_the_primary_is_unreachable_and_each_key_is_counted() {
    let node = FailoverNode::alone();
    node.primary.cut.store(true, SeqCst);
    for byte in 1..=9 {
        node.complete(byte).await;
        node.replays(byte).await;
    }
    assert_eq!(node.unprotected(), (9, 0), "replays are protected, and not counted");
    let calls = node.primary.calls.load(SeqCst);
    assert!(calls < 9, "an unreachable primary is not called for every key: {calls}");
}

#[tokio::test]
async fn keys_of_the_secondary_are_still_protected_after_the_primary_is_back() {
    let node = FailoverNode::alone();
    let twin = node.twin();
    node.primary.cut.store(true, SeqCst);
    node.complete(1).await;
    let owner = node.granted(2).await.owner;
    node.reconnect_primary().await;
    twin.window_is_read(true).await;
    for node in [&node, &twin] {
        node.replays(1).await;
        assert!(matches!(node.claim(2).await, Claim::Busy { .. }));
    }
    let renewed = node.store.renew(&RenewRequest::new(owner, RETENTION)).await.unwrap();
    assert_eq!(renewed, Renewal::Extended, "the owner renews on the store that granted its claim");
    assert_eq!(node.unprotected(), (2, 0));
    assert_eq!(twin.unprotected(), (0, 0));
}

#[tokio::test]
async fn a_node_that_starts_later_reads_the_secondary_too() {
    let node = FailoverNode::alone();
    node.primary.cut.store(true, SeqCst);
    node.complete(1).await;
    let late = node.twin();
    late.replays(1).await;
    assert_eq!(late.unprotected(), (0, 0));
}

#[tokio::test]
async fn the_secondary_is_not_read_any_more_when_all_its_records_have_expired() {
    let node = FailoverNode::alone();
    node.primary.cut.store(true, SeqCst);
    node.complete(1).await;
    node.reconnect_primary().await;
    node.primary.clock.advance(RETENTION);
    node.window_is_read(true).await;
    node.primary.clock.advance(Duration::from_secs(3600));
    let late = node.twin();
    late.window_is_read(false).await;
    late.granted(1).await;
}

#[tokio::test]
async fn a_node_that_cannot_reach_the_primary_runs_work_twice_and_counts_it() {
    let node = FailoverNode::alone();
    let cut = node.twin();
    node.window_is_read(false).await;
    node.complete(1).await;
    cut.primary.cut.store(true, SeqCst);
    cut.complete(1).await;
    assert_eq!(cut.unprotected(), (1, 0));
    node.window_is_read(true).await;
    cut.complete(2).await;
    node.replays(2).await;
    assert_eq!(node.unprotected(), (0, 0));
}

#[tokio::test]
async fn without_the_secondary_the_primary_serves_and_each_new_key_is_counted() {
    let clock = ManualClock::new();
    let secondary = NodeConnection::new(&clock);
    secondary.cut.store(true, SeqCst);
    // The node cannot read the failback window, so it has to read the secondary.
    let node = FailoverNode::new(NodeConnection::new(&clock), secondary);
    for byte in 1..=9 {
        node.complete(byte).await;
        node.replays(byte).await;
    }
    assert_eq!(node.unprotected(), (0, 9));
}

#[tokio::test]
async fn without_both_new_keys_fail() {
    let node = FailoverNode::alone();
    node.primary.cut.store(true, SeqCst);
    node.secondary.cut.store(true, SeqCst);
    let error = node.store.claim(&request(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_key_released_on_the_secondary_is_claimed_on_the_primary_again() {
    let node = FailoverNode::alone();
    node.primary.cut.store(true, SeqCst);
    let owner = node.granted(1).await.owner;
    node.store.release(&ReleaseRequest { owner, effect: Effect::None }).await.unwrap();
    node.reconnect_primary().await;
    node.complete(1).await;
    assert!(node.primary.store.get(&key(1)).await.unwrap().is_some());
    node.replays(1).await;
    assert_eq!(node.unprotected(), (1, 0));
}

#[tokio::test]
async fn an_owner_whose_origin_is_forgotten_completes_on_the_store_that_has_it() {
    let node = FailoverNode::alone();
    node.primary.cut.store(true, SeqCst);
    let owner = node.granted(1).await.owner;
    node.reconnect_primary().await;
    let twin = node.twin();
    let outcome = Arc::new(Outcome::success("done"));
    let reply = twin.store.complete(&CompleteRequest { owner, outcome }).await.unwrap();
    assert_eq!(reply, Completion::Recorded);
}

#[tokio::test]
async fn an_erased_or_forgotten_key_is_gone_from_both_stores() {
    let node = FailoverNode::alone();
    node.complete(1).await;
    node.complete(2).await;
    node.primary.cut.store(true, SeqCst);
    node.complete(2).await;
    let half = node.store.erase(&key(1)).await.unwrap_err();
    assert!(half.to_string().contains("half done"), "{half}");
    node.reconnect_primary().await;
    assert_eq!(node.store.erase(&key(1)).await.unwrap(), Erasure::Erased);
    assert_eq!(node.claim(1).await, Claim::Gone);
    assert_eq!(node.store.forget(&key(2)).await.unwrap(), Forgetting::Forgotten);
    assert_eq!(node.store.forget(&key(2)).await.unwrap(), Forgetting::Missing);
    node.granted(2).await;
}

#[tokio::test]
async fn keys_of_both_stores_are_listed_once() {
    let node = FailoverNode::alone();
    for byte in [1, 3] {
        node.complete(byte).await;
    }
    node.primary.cut.store(true, SeqCst);
    for byte in [2, 3] {
        node.complete(byte).await;
    }
    node.reconnect_primary().await;
    let page = node.store.list(&ListQuery::default()).await.unwrap();
    assert_eq!(page.iter().map(|it| it.key).collect::<Vec<_>>(), [key(1), key(2), key(3)]);
    let two = ListQuery { limit: 2, ..ListQuery::default() };
    assert_eq!(node.store.list(&two).await.unwrap().len(), 2);
}
