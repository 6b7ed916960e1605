//! Redis first, PostgreSQL while it is unreachable: what may run twice is counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use semel_core::{Engine, Failover, Fingerprint, Policy, WorkError};
use semel_faults::{Fault, FaultProxy};
use semel_layers::Site;
use semel_store_postgres::PostgresStore;
use semel_store_redis::RedisStore;
use tokio::{sync::Notify, time::sleep};

use super::load::{Load, engine, key, run};

/// A node whose way to Redis can be cut.
struct Node {
    store: Arc<Failover<RedisStore, PostgresStore>>,
    engine: Engine,
    proxy: FaultProxy,
}

impl Node {
    async fn start(site: &Site) -> Self {
        let proxy = FaultProxy::start(site.redis.port()).unwrap();
        let store = Arc::new(site.failover(&proxy).await);
        Self { engine: engine(store.clone()), store, proxy }
    }

    fn cut(&self) {
        self.proxy.set(Fault::Refuse);
        self.proxy.cut();
    }

    /// True when this call ran the work.
    async fn runs(&self, id: &str) -> bool {
        let ran = Arc::new(AtomicU32::new(0));
        assert!(!run(self.engine.clone(), id.to_owned(), ran.clone()).await, "{id}: no store");
        ran.load(SeqCst) == 1
    }

    /// The same, and whether Redis can have answered within [`PATIENCE`]. If so, nothing may be counted.
    async fn runs_in_time(&self, id: &str) -> (bool, bool) {
        let (before, started) = (self.counted(), Instant::now());
        let ran = self.runs(id).await;
        let in_time = started.elapsed() < PATIENCE;
        if !in_time {
            self.until_protected().await;
        } else {
            assert_eq!(self.counted(), before, "{id}: {:?}", self.store.unprotected());
        }
        (ran, in_time)
    }

    fn counted(&self) -> u64 {
        let counts = self.store.unprotected();
        counts.primary_unreachable + counts.secondary_unasked
    }

    /// Waits until new keys are not counted any more: the primary is back, and the secondary answers.
    async fn until_protected(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let before = self.counted();
            self.runs(&format!("probe-{:016x}", rand::random::<u64>())).await;
            if self.counted() == before {
                return;
            }
            assert!(Instant::now() < deadline, "never protected again");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_killed_under_load_costs_no_key_and_what_may_run_twice_is_counted() {
    let mut site = Site::start();
    let nodes = [Node::start(&site).await, Node::start(&site).await];
    let load = Load::start(&[nodes[0].engine.clone(), nodes[1].engine.clone()]);
    sleep(Duration::from_millis(500)).await;
    site.redis.kill().unwrap();
    sleep(Duration::from_millis(1500)).await;
    site.redis.restart().unwrap();
    sleep(Duration::from_millis(500)).await;
    let tally = load.end().await;
    let counted: u64 = nodes.iter().map(Node::counted).sum();
    assert!(tally.keys > 50 && counted > 0, "{tally:?}, {counted} counted");
    assert_eq!(tally.failed, 0, "{tally:?}");
    assert!(u64::from(tally.twice) <= counted, "{tally:?}, {counted} counted");
}

/// How long a failover waits for Redis. A claim that took longer, on a busy machine, may be counted as an outage.
const PATIENCE: Duration = Duration::from_millis(700);

/// Every pooled connection is dead, and the server behind them is there with all that it acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn redis_that_was_restarted_with_its_data_is_asked_again_and_runs_nothing_twice() {
    let mut site = Site::start();
    let mut node = Node::start(&site).await;
    let patient = Policy::api().store_timeout(Duration::from_secs(20));
    node.engine = node.engine.with_policy(patient).unwrap();
    let mut replayed_in_time = 0;
    for round in 0..4 {
        // More keys than connections: each of these meets a claim.
        let ids: Vec<_> = (0..8).map(|key| format!("{round}-{key}")).collect();
        for id in &ids {
            let (ran, _) = node.runs_in_time(id).await;
            assert!(ran, "{id} is new");
        }
        site.redis.kill().unwrap();
        site.redis.restart().unwrap();
        for id in &ids {
            let (ran, in_time) = node.runs_in_time(id).await;
            assert!(!ran || !in_time, "{id}: its outcome is in Redis");
            replayed_in_time += u32::from(in_time);
        }
        // The same without an outage: whatever lies between the two forgot the connections.
        node.proxy.cut();
        for id in &ids {
            let (ran, in_time) = node.runs_in_time(id).await;
            assert!(!ran || !in_time, "{id}: Redis was there all the time");
            replayed_in_time += u32::from(in_time);
        }
    }
    assert!(replayed_in_time > 0, "every claim took longer than {PATIENCE:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cut_for_one_of_two_nodes_allows_duplicates_and_counts_them() {
    let site = Site::start();
    let (whole, cut) = (Node::start(&site).await, Node::start(&site).await);
    for id in ["a", "b", "c"] {
        assert!(whole.runs(id).await && !cut.runs(id).await, "{id} runs once while all is well");
    }
    cut.cut();
    for id in ["a", "b", "c"] {
        assert!(cut.runs(id).await, "{id}: nobody could tell that it ran");
    }
    assert!(cut.counted() >= 3, "{:?}", cut.store.unprotected());
    assert_eq!(whole.counted(), 0);
    // What the cut node completes is seen by the other, once that has read that it has to ask.
    let deadline = Instant::now() + Duration::from_secs(15);
    for later in 0.. {
        let id = format!("later-{later}");
        assert!(cut.runs(&id).await);
        if !whole.runs(&id).await {
            break;
        }
        assert!(Instant::now() < deadline, "the other node never asks the secondary");
    }
    assert_eq!(whole.counted(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ran_during_an_outage_is_replayed_after_it_on_every_node() {
    let mut site = Site::start();
    let (one, two) = (Node::start(&site).await, Node::start(&site).await);
    site.redis.kill().unwrap();
    for id in ["a", "b"] {
        assert!(one.runs(id).await, "{id}");
        assert!(!two.runs(id).await, "{id}: the secondary is one for all");
    }
    let slow = hanging(&one.engine).await;
    site.redis.restart().unwrap();
    let late = Node::start(&site).await;
    for node in [&one, &two, &late] {
        node.until_protected().await;
        let before = node.counted();
        for id in ["a", "b"] {
            assert!(!node.runs(id).await, "{id} ran before");
        }
        assert_eq!(node.counted(), before);
    }
    assert_eq!(slow.await.unwrap(), "done", "an owner goes on where it was granted");
    assert!(!late.runs("slow").await);
}

/// Work that was claimed during the outage and ends after it.
async fn hanging(engine: &Engine) -> tokio::task::JoinHandle<String> {
    let (engine, begun) = (engine.clone(), Arc::new(Notify::new()));
    let begins = begun.clone();
    let running = tokio::spawn(async move {
        let work = |_| async move {
            begins.notify_one();
            sleep(Duration::from_secs(3)).await;
            Ok::<_, WorkError>("done".to_owned())
        };
        engine.run(key("slow"), Fingerprint::of(&"this").unwrap(), work).await.unwrap().value
    });
    begun.notified().await;
    running
}
