//! Runs the HTTP conformance suite on the gateway, over each store. Here the gateway runs in this process, so that its
//! store can be broken; the tests of `semel-cli` run the suite on the binary.

use std::{future::pending, net::Ipv4Addr};

use async_trait::async_trait;
use http::Uri;
use semel::{Engine, Principal, Scope, Store};
use semel_conformance::http::{Ability, Breakable, Switch, TestServer, TestUpstream};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle, time::Instant};

use super::{pipeline::RequestPipeline, server};
use clap::{Args, Command};
use semel_service::settings::{self, GatewayConfig, GatewayFlags};

mod memory {
    semel_conformance::http_tests!(
        super::InProcessGateway::over(semel::MemoryStore::new(), None).await
    );
}

mod embedded {
    semel_conformance::http_tests!({
        let folder = tempfile::tempdir().unwrap();
        let store = semel::EmbeddedStore::open(folder.path()).unwrap();
        super::InProcessGateway::over(store, Some(folder)).await
    });
}

struct InProcessGateway {
    base_url: Uri,
    upstream: TestUpstream,
    engine: Engine,
    broken: Switch,
    _upstream: TestServer,
    task: JoinHandle<(Instant, bool)>,
    _folder: Option<TempDir>,
}

impl InProcessGateway {
    async fn over(store: impl Store, folder: Option<TempDir>) -> Self {
        let (upstream, broken) = (TestUpstream::new(), Switch::default());
        let served = upstream.serve().await;
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance.toml");
        let url = served.base_url().to_string();
        let config = config(&["--config", file, "--upstream", &url]);
        let store = Breakable::new(store, broken.clone());
        let engine = Engine::builder().store(store).build().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let pipeline = RequestPipeline::new(&config, engine.clone()).unwrap();
        let serving = server::serve(listener, pipeline, config.client, pending());
        let task = tokio::spawn(serving);
        Self { base_url, upstream, engine, broken, _upstream: served, task, _folder: folder }
    }
}

/// The configuration from these flags.
fn config(flags: &[&str]) -> GatewayConfig {
    let command = GatewayFlags::augment_args(Command::new("semel").no_binary_name(true));
    let matches = command.try_get_matches_from(flags).expect("good flags");
    settings::load(&matches).unwrap_or_else(|bad| panic!("{bad}"))
}

impl Drop for InProcessGateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[async_trait]
impl semel_conformance::http::HttpTarget for InProcessGateway {
    fn base_url(&self) -> Uri {
        self.base_url.clone()
    }
    fn upstream(&self) -> &TestUpstream {
        &self.upstream
    }
    fn unsupported(&self) -> &[Ability] {
        &[]
    }
    async fn erase(&self, operation: &str, authorization: &str, id: &str) {
        let scope = Scope::new("conformance", Principal::credential(authorization), operation);
        let key = self.engine.key_hash(&scope.key(id).unwrap());
        self.engine.erase(&key, "the suite erases it").await.unwrap();
    }
    async fn break_store(&self) {
        self.broken.set(true);
    }
    async fn repair_store(&self) {
        self.broken.set(false);
    }
}
