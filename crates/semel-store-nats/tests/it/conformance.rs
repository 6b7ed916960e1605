//! The store conformance suite, on one NATS server and on a cluster, and with a cache.

use std::time::Duration;

use semel_conformance::{RealTime, Subject, Time};
use semel_core::{Cached, Store};
use semel_servers::{NatsCluster, needed};
use semel_store_nats::NatsStore;

use crate::common::{LATE, at, follows_the_protocol, keeps_every_promise};

/// A store under test, and the servers that must live as long as it.
struct NatsSubject<S, H = ()>(S, RealTime, H);

macro_rules! subject {
    ($name:ty, $open:expr) => {
        impl Subject for $name {
            async fn open() -> Self {
                let (store, held) = $open;
                Self(store, RealTime::default(), held)
            }
            fn store(&self) -> &dyn Store {
                &self.0
            }
            fn time(&self) -> &dyn Time {
                &self.1
            }
            fn tolerance(&self) -> Duration {
                LATE
            }
        }
    };
}

async fn nats() -> NatsStore {
    at(&needed("SEMEL_TEST_NATS_URL"), "plain").connect().await.unwrap()
}

async fn cluster() -> (NatsStore, NatsCluster) {
    let nodes = NatsCluster::start(3).unwrap();
    let url = format!("nats://{}", nodes.addresses());
    (at(&url, "cluster").replicas(3).connect().await.unwrap(), nodes)
}

mod plain {
    use super::*;

    subject!(NatsSubject<NatsStore>, (nats().await, ()));

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        keeps_every_promise(nats().await).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        follows_the_protocol::<NatsSubject<NatsStore>>(4);
    }
}

mod cached {
    use super::*;

    type CachedNatsSubject = NatsSubject<Cached<NatsStore>>;

    subject!(CachedNatsSubject, (Cached::new(nats().await, 1000), ()));

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        keeps_every_promise(Cached::new(nats().await, 1000)).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        follows_the_protocol::<CachedNatsSubject>(2);
    }
}

mod on_a_cluster {
    use super::*;

    type NatsClusterSubject = NatsSubject<NatsStore, NatsCluster>;

    subject!(NatsClusterSubject, cluster().await);

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        let (store, _nodes) = cluster().await;
        keeps_every_promise(store).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        follows_the_protocol::<NatsClusterSubject>(1);
    }
}
