//! Two gateways on a store of two servers, one of which fails: for both gateways, or for one of them.

use std::{net::SocketAddr, sync::Arc};

use semel_faults::{Fault, FaultProxy};
use semel_servers::{POSTGRES, REDIS, Running, needed};

use super::{SharedStore, load::GatewayLoad};
use crate::harness::{GatewayProcess, Setup, TestRequest, TestUpstream, request_to, until};

const TOKEN: &str = "an-admin-token-0123456789abcdef";

/// A gateway and its metrics.
struct GatewayNode {
    gateway: Arc<GatewayProcess>,
    admin: SocketAddr,
}

impl GatewayNode {
    async fn start(setup: Setup) -> Self {
        let setup = setup.flag("--admin", "127.0.0.1:0").flag("--admin-token", TOKEN);
        let mut gateway = setup.start().await;
        let admin = gateway.admin().await;
        Self { gateway: Arc::new(gateway), admin }
    }

    async fn two(store: &SharedStore, upstream: &TestUpstream) -> [Self; 2] {
        [Self::start(store.to(upstream)).await, Self::start(store.to(upstream)).await]
    }

    /// The sum of all counters whose name begins with `name`.
    async fn counted(&self, name: &str) -> usize {
        let metrics =
            TestRequest::get("/metrics").header("Authorization", &format!("Bearer {TOKEN}"));
        let text = request_to(self.admin, metrics).await.text();
        let shown = text.lines().filter(|line| line.starts_with(name));
        shown.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
    }

    async fn unprotected(&self) -> usize {
        self.counted("idempotency_unprotected_total").await
    }

    /// True if this request ran and was not replayed.
    async fn runs(&self, key: &str) -> bool {
        let response = self.gateway.request(TestRequest::charge(key)).await;
        assert_eq!(response.status, 200, "{response:?}");
        !response.is_replay()
    }
}

fn load(nodes: [&GatewayNode; 2]) -> GatewayLoad {
    GatewayLoad::start(&nodes.map(|node| node.gateway.clone()))
}

fn cut(proxy: &FaultProxy) {
    proxy.set(Fault::Refuse);
    proxy.cut();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_an_arbiter_fails_no_request_and_runs_nothing_twice() {
    let mut redis = Running::start(&REDIS.durable()).unwrap();
    let store = SharedStore::arbiter_over(&needed("SEMEL_TEST_POSTGRES_URL"), redis.url());
    let upstream = TestUpstream::counting().await;
    let [one, other] = GatewayNode::two(&store, &upstream).await;
    let load = load([&one, &other]);
    load.pass(20).await;
    redis.kill().unwrap();
    load.pass(40).await;
    redis.restart().unwrap();
    load.pass(20).await;
    load.end().await.assert_each_ran_once(&upstream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_postgres_an_arbiter_refuses_new_keys_and_serves_replays() {
    let mut postgres = Running::start(&POSTGRES).unwrap();
    let store = SharedStore::arbiter_over(postgres.url(), &needed("SEMEL_TEST_REDIS_URL"));
    let upstream = TestUpstream::counting().await;
    // --wait is for other runs of a key, not for a store that is down.
    let setup = store.to(&upstream).flag("--wait", "1h");
    let nodes = [GatewayNode::start(setup.clone()).await, GatewayNode::start(setup).await];
    assert!(nodes[0].runs("known").await);
    let copied = "idempotency_front_puts_total{result=\"done\"}";
    until("its copy is in Redis", async || nodes[0].counted(copied).await == 1).await;
    postgres.kill().unwrap();
    for node in &nodes {
        node.gateway.request(TestRequest::charge("known")).await.assert_replay("run 1");
        node.gateway
            .request(TestRequest::charge("new"))
            .await
            .assert_problem(503, "store-unavailable");
    }
    assert_eq!(upstream.count(), 1);
    postgres.restart().unwrap();
    until("new keys run again", async || {
        nodes[0].gateway.request(TestRequest::charge("new")).await.status == 200
    })
    .await;
    until("the other one replays", async || {
        nodes[1].gateway.request(TestRequest::charge("new")).await.is_replay()
    })
    .await;
    assert_eq!(upstream.count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cut_for_one_gateway_with_an_arbiter_runs_nothing_twice() {
    let (store, upstream) = (SharedStore::arbiter(), TestUpstream::counting().await);
    let proxy = store.proxy();
    let cut_off = GatewayNode::start(store.through(&proxy, &upstream)).await;
    let healthy = GatewayNode::start(store.to(&upstream)).await;
    let load = load([&cut_off, &healthy]);
    for fault in [Fault::BlackHole, Fault::None, Fault::OneWay, Fault::None, Fault::Refuse] {
        load.pass(10).await;
        proxy.set(fault);
        proxy.cut();
    }
    load.pass(10).await;
    load.end().await.assert_each_ran_once(&upstream);
    assert!(proxy.counts().refused > 0, "it never tried again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cut_for_one_gateway_with_a_failover_counts_what_may_run_twice() {
    let (store, upstream) = (SharedStore::failover(), TestUpstream::counting().await);
    let proxy = store.proxy();
    let cut_off = GatewayNode::start(store.through(&proxy, &upstream)).await;
    let healthy = GatewayNode::start(store.to(&upstream)).await;
    for key in ["a", "b", "c"] {
        assert!(healthy.runs(key).await && !cut_off.runs(key).await, "{key} runs once at first");
    }
    assert_eq!(cut_off.unprotected().await, 0);
    cut(&proxy);
    for key in ["a", "b", "c"] {
        assert!(cut_off.runs(key).await, "{key}: the gateway cannot know that it ran");
    }
    assert!(cut_off.unprotected().await >= upstream.count() - 3);
    // The other gateway does not run what the cut one ran, once it has read that PostgreSQL must be asked.
    let mut keys = (0..).map(|number| format!("later-{number}"));
    let mut shared = String::new();
    until("the other asks PostgreSQL", async || {
        shared = keys.next().unwrap();
        assert!(cut_off.runs(&shared).await);
        !healthy.runs(&shared).await
    })
    .await;
    assert_eq!(healthy.unprotected().await, 0);
    proxy.set(Fault::None);
    falls_back(&cut_off).await;
    let before = (upstream.count(), cut_off.unprotected().await);
    for node in [&cut_off, &healthy] {
        assert!(!node.runs(&shared).await, "it ran during the outage");
    }
    assert_eq!((upstream.count(), cut_off.unprotected().await), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_a_failover_fails_no_request_and_counts_what_may_run_twice() {
    let mut redis = Running::start(&REDIS.durable()).unwrap();
    let (store, upstream) =
        (SharedStore::failover_over(redis.url()), TestUpstream::counting().await);
    let nodes = GatewayNode::two(&store, &upstream).await;
    let load = load([&nodes[0], &nodes[1]]);
    load.pass(20).await;
    redis.kill().unwrap();
    load.pass(40).await;
    redis.restart().unwrap();
    for node in &nodes {
        falls_back(node).await;
    }
    load.pass(20).await;
    let tally = load.end().await;
    let counted = nodes[0].unprotected().await + nodes[1].unprotected().await;
    let probes = upstream.received().iter().filter(|it| it.target.starts_with("/probe")).count();
    let twice = upstream.count() - probes - tally.keys;
    assert!(counted > 0 && twice <= counted, "{twice} twice, {counted} counted, {tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_failover_starts_without_redis_and_uses_it_once_it_is_there() {
    let mut redis = Running::start(&REDIS.durable()).unwrap();
    let (store, upstream) =
        (SharedStore::failover_over(redis.url()), TestUpstream::counting().await);
    redis.kill().unwrap();
    let node = GatewayNode::start(store.to(&upstream)).await;
    assert!(node.runs("a").await && !node.runs("a").await);
    assert!(node.unprotected().await > 0);
    redis.restart().unwrap();
    falls_back(&node).await;
    assert!(!node.runs("a").await, "it ran before");
}

/// Waits until new keys are no longer counted as unprotected: Redis is back, and PostgreSQL is asked.
async fn falls_back(node: &GatewayNode) {
    let mut keys = (0..).map(|number| format!("{}-{number}", node.admin));
    until("it is protected again", async || {
        let before = node.unprotected().await;
        let probe = TestRequest::post("/probe").key(&keys.next().unwrap());
        assert_eq!(node.gateway.request(probe).await.status, 200);
        node.unprotected().await == before
    })
    .await;
}
