//! Runs the HTTP conformance suite on the binary. The cases that need a failing store or an operator run in process:
//! `crates/semel-gateway/src/tests.rs`.

use async_trait::async_trait;
use http::Uri;
use semel_conformance::http::{Ability, HttpTarget, TestServer, TestUpstream};

use crate::{
    harness::{GatewayProcess, Setup},
    shared::SharedStore,
};

struct Binary {
    gateway: GatewayProcess,
    upstream: TestUpstream,
    _served: TestServer,
}

impl Binary {
    async fn open(on: impl FnOnce(Setup) -> Setup) -> Self {
        let upstream = TestUpstream::new();
        let served = upstream.serve().await;
        let setup = Setup::new()
            .without("--principal")
            .flag("--upstream", &served.base_url().to_string())
            .config(include_str!("../../../semel-gateway/tests/conformance.toml"));
        let setup = on(setup);
        Self { gateway: setup.start().await, upstream, _served: served }
    }
}

#[async_trait]
impl HttpTarget for Binary {
    fn base_url(&self) -> Uri {
        format!("http://{}", self.gateway.address).parse().unwrap()
    }
    fn upstream(&self) -> &TestUpstream {
        &self.upstream
    }
    fn unsupported(&self) -> &[Ability] {
        &[Ability::Erase, Ability::BreakStore]
    }
    async fn erase(&self, _: &str, _: &str, _: &str) {}
    async fn break_store(&self) {}
    async fn repair_store(&self) {}
}

async fn keeps_every_promise(on: impl FnOnce(Setup) -> Setup) {
    let report = semel_conformance::http(&Binary::open(on).await).await;
    assert!(report.broken.is_empty(), "{report}");
    assert_eq!(report.not_shown.len(), 4, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_passes_in_memory() {
    keeps_every_promise(|setup| setup).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_passes_on_the_embedded_store() {
    keeps_every_promise(Setup::embedded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_passes_on_postgres() {
    let store = SharedStore::postgres();
    keeps_every_promise(|setup| store.of(setup)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_passes_on_redis() {
    let store = SharedStore::redis();
    keeps_every_promise(|setup| store.of(setup)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_passes_on_shared_stores_behind_a_cache() {
    for store in [SharedStore::postgres(), SharedStore::redis()] {
        keeps_every_promise(|setup| store.of(setup).flag("--cache", "1000")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_passes_on_nats() {
    let store = SharedStore::nats();
    keeps_every_promise(|setup| store.of(setup)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_passes_on_two_servers_as_one_store() {
    for store in [SharedStore::arbiter(), SharedStore::failover()] {
        keeps_every_promise(|setup| store.of(setup).flag("--cache", "1000")).await;
    }
}
