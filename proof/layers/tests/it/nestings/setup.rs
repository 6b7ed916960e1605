//! Opens nested stores as the command `semel` does: by a URL and options.

use std::{
    any::Any,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use semel::{KeyRing, SealKey, SealKeys, SealOptions, StoreOptions, StoreUrl};
use semel_conformance::RealTime;
use semel_core::Store;
use semel_servers::{NatsCluster, needed};

use crate::{nats_store::unique, postgres_store::Schema};

/// The URL and options of a store, and what must live as long as the store.
pub(crate) struct NestedSetup {
    url: String,
    options: StoreOptions,
    kept_alive: Box<dyn Any + Send + Sync>,
}

/// An open store.
pub(crate) struct NestedStore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) time: RealTime,
    _kept_alive: Box<dyn Any + Send + Sync>,
}

impl NestedSetup {
    fn at(url: String, kept_alive: impl Any + Send + Sync) -> Self {
        let options =
            StoreOptions { migrate: true, connections: Some(2), ..StoreOptions::default() };
        Self { url, options, kept_alive: Box::new(kept_alive) }
    }

    pub(crate) fn postgres() -> Self {
        let schema = Schema::new();
        Self::at(format!("{}?schema={}", schema.url, schema.name), schema)
    }

    pub(crate) fn redis() -> Self {
        let url = needed("SEMEL_TEST_REDIS_URL");
        Self::at(format!("{url}?prefix={}", unique("nested")), ())
    }

    pub(crate) fn nats() -> Self {
        Self::in_bucket(&needed("SEMEL_TEST_NATS_URL"), ())
    }

    /// A cluster of three servers with three replicas.
    pub(crate) fn nats_cluster() -> Self {
        let nodes = shared_cluster();
        Self::in_bucket(&format!("nats://{}", nodes.addresses()), nodes)
    }

    fn in_bucket(server: &str, kept_alive: impl Any + Send + Sync) -> Self {
        Self::at(format!("{server}/semel-tests?prefix={}", unique("nested")), kept_alive)
    }

    /// An arbiter: PostgreSQL with Redis as its front.
    pub(crate) fn arbiter() -> Self {
        let (mut setup, front) = (Self::postgres(), Self::redis());
        setup.options.front = Some(front.store_url());
        setup
    }

    /// A failover: Redis with PostgreSQL as its secondary.
    pub(crate) fn failover() -> Self {
        let (mut setup, behind) = (Self::redis(), Self::postgres());
        setup.options.failover = Some(behind.store_url());
        setup.options.allow_duplicate_execution_on_failover = true;
        setup.kept_alive = behind.kept_alive;
        setup
    }

    pub(crate) fn sealed(mut self) -> Self {
        let keys = SealKeys::parse(&SealKey::random("nested").unwrap().line()).unwrap();
        self.options.seal = Some(SealOptions::with(KeyRing::new(keys)));
        self
    }

    pub(crate) fn cached(mut self) -> Self {
        self.options.cache = Some(1000);
        self
    }

    pub(crate) async fn open(self) -> NestedStore {
        let store = self.store_url().open(&self.options).await.unwrap();
        NestedStore { store, time: RealTime::default(), _kept_alive: self.kept_alive }
    }

    fn store_url(&self) -> StoreUrl {
        self.url.parse().unwrap()
    }
}

/// One cluster for all tests that use one at the same time. The last of them stops it.
fn shared_cluster() -> Arc<NatsCluster> {
    static SHARED: Mutex<Weak<NatsCluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let nodes = Arc::new(NatsCluster::start(3).unwrap());
        *shared = Arc::downgrade(&nodes);
        nodes
    })
}
