//! A failover: Redis is the primary, PostgreSQL the secondary. Runs that may be duplicates are counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use semel_core::{Engine, Failover, Fingerprint, Policy, WorkError};
use semel_faults::{Fault, FaultProxy};
use semel_layers::TwoServers;
use semel_store_postgres::PostgresStore;
use semel_store_redis::RedisStore;
use tokio::{sync::Notify, time::sleep};

use super::load::{LayerLoad, engine, key, run};

/// A node whose connections to Redis can be cut.
struct FailoverNode {
    store: Arc<Failover<RedisStore, PostgresStore>>,
    engine: Engine,
    proxy: FaultProxy,
}

impl FailoverNode {
    async fn start(servers: &TwoServers) -> Self {
        let proxy = FaultProxy::start(servers.redis.port()).unwrap();
        let store = Arc::new(servers.failover(&proxy).await);
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

    /// True when this call ran the work, and whether it took less than [`PATIENCE`]. If so, nothing may be counted.
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

    /// Waits until new keys are no longer counted: both stores answer.
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
    let mut servers = TwoServers::start();
    let nodes = [FailoverNode::start(&servers).await, FailoverNode::start(&servers).await];
    let load = LayerLoad::start(&[nodes[0].engine.clone(), nodes[1].engine.clone()]);
    sleep(Duration::from_millis(500)).await;
    servers.redis.kill().unwrap();
    sleep(Duration::from_millis(1500)).await;
    servers.redis.restart().unwrap();
    sleep(Duration::from_millis(500)).await;
    let tally = load.end().await;
    let counted: u64 = nodes.iter().map(FailoverNode::counted).sum();
    assert!(tally.keys > 50 && counted > 0, "{tally:?}, {counted} counted");
    assert_eq!(tally.failed, 0, "{tally:?}");
    assert!(u64::from(tally.twice) <= counted, "{tally:?}, {counted} counted");
}

/// How long a failover waits for Redis. A claim that took longer, on a busy machine, may be counted as an outage.
const PATIENCE: Duration = Duration::from_millis(700);

/// Every pooled connection is dead, and the restarted server has everything that it acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_was_restarted_with_its_data_is_used_again_and_nothing_runs_twice() {
    let mut servers = TwoServers::start();
    let mut node = FailoverNode::start(&servers).await;
    let patient = Policy::api().store_timeout(Duration::from_secs(20));
    node.engine = node.engine.with_policy(patient).unwrap();
    let mut replayed_in_time = 0;
    for round in 0..4 {
        // More keys than connections, so that every connection is used.
        let ids: Vec<_> = (0..8).map(|key| format!("{round}-{key}")).collect();
        for id in &ids {
            let (ran, _) = node.runs_in_time(id).await;
            assert!(ran, "{id} is new");
        }
        servers.redis.kill().unwrap();
        servers.redis.restart().unwrap();
        for id in &ids {
            let (ran, in_time) = node.runs_in_time(id).await;
            assert!(!ran || !in_time, "{id}: its outcome is in Redis");
            replayed_in_time += u32::from(in_time);
        }
        // The same without an outage: all connections are reset.
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
    let servers = TwoServers::start();
    let (whole, cut) = (FailoverNode::start(&servers).await, FailoverNode::start(&servers).await);
    for id in ["a", "b", "c"] {
        assert!(whole.runs(id).await && !cut.runs(id).await, "{id} runs once while all is well");
    }
    cut.cut();
    for id in ["a", "b", "c"] {
        assert!(cut.runs(id).await, "{id}: the cut node cannot know that it ran");
    }
    assert!(cut.counted() >= 3, "{:?}", cut.store.unprotected());
    assert_eq!(whole.counted(), 0);
    // The other node replays what the cut node completes, once it knows that it has to read the secondary.
    let deadline = Instant::now() + Duration::from_secs(15);
    for later in 0.. {
        let id = format!("later-{later}");
        assert!(cut.runs(&id).await);
        if !whole.runs(&id).await {
            break;
        }
        assert!(Instant::now() < deadline, "the other node never reads the secondary");
    }
    assert_eq!(whole.counted(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_of_an_outage_are_replayed_afterwards_on_every_node() {
    let mut servers = TwoServers::start();
    let (one, two) = (FailoverNode::start(&servers).await, FailoverNode::start(&servers).await);
    servers.redis.kill().unwrap();
    for id in ["a", "b"] {
        assert!(one.runs(id).await, "{id}");
        assert!(!two.runs(id).await, "{id}: both nodes share the secondary");
    }
    let slow = hanging(&one.engine).await;
    servers.redis.restart().unwrap();
    let late = FailoverNode::start(&servers).await;
    for node in [&one, &two, &late] {
        node.until_protected().await;
        let before = node.counted();
        for id in ["a", "b"] {
            assert!(!node.runs(id).await, "{id} ran before");
        }
        assert_eq!(node.counted(), before);
    }
    assert_eq!(
        slow.await.unwrap(),
        "done",
        "an owner completes in the store that granted its claim"
    );
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
