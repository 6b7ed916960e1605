//! Stores as the command opens them: a URL and options.

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

/// Where a store is, what is around it, and what must outlive it.
pub(crate) struct Site {
    url: String,
    options: StoreOptions,
    held: Box<dyn Any + Send + Sync>,
}

/// An open store.
pub(crate) struct Nested {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) time: RealTime,
    _held: Box<dyn Any + Send + Sync>,
}

impl Site {
    fn at(url: String, held: impl Any + Send + Sync) -> Self {
        let options =
            StoreOptions { migrate: true, connections: Some(2), ..StoreOptions::default() };
        Self { url, options, held: Box::new(held) }
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

    /// Three copies on three servers.
    pub(crate) fn nats_cluster() -> Self {
        let nodes = shared_cluster();
        Self::in_bucket(&format!("nats://{}", nodes.addresses()), nodes)
    }

    fn in_bucket(server: &str, held: impl Any + Send + Sync) -> Self {
        Self::at(format!("{server}/semel-tests?prefix={}", unique("nested")), held)
    }

    /// PostgreSQL with Redis in front of it.
    pub(crate) fn arbiter() -> Self {
        let (mut site, front) = (Self::postgres(), Self::redis());
        site.options.front = Some(front.store_url());
        site
    }

    /// Redis with PostgreSQL behind it.
    pub(crate) fn failover() -> Self {
        let (mut site, behind) = (Self::redis(), Self::postgres());
        site.options.failover = Some(behind.store_url());
        site.options.allow_duplicate_execution_on_failover = true;
        site.held = behind.held;
        site
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

    pub(crate) async fn open(self) -> Nested {
        let store = self.store_url().open(&self.options).await.unwrap();
        Nested { store, time: RealTime::default(), _held: self.held }
    }

    fn store_url(&self) -> StoreUrl {
        self.url.parse().unwrap()
    }
}

/// One for all who have one at the same time; the last of them ends it.
fn shared_cluster() -> Arc<NatsCluster> {
    static SHARED: Mutex<Weak<NatsCluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let nodes = Arc::new(NatsCluster::start(3).unwrap());
        *shared = Arc::downgrade(&nodes);
        nodes
    })
}
