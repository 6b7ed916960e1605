//! The store conformance suite, on Redis, Valkey and a Redis Cluster, and with a cache.

use std::time::Duration;

use semel_conformance::{RealTime, Subject, Time};
use semel_core::{Cached, Store};
use semel_servers::{REDIS, RedisCluster, needed};
use semel_store_redis::RedisStore;

use crate::common::{at, follows_the_protocol, keeps_every_promise};

/// A store under test, and the servers that must live as long as it.
struct RedisSubject<S, H = ()>(S, RealTime, H);

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
                Duration::from_millis(50)
            }
        }
    };
}

async fn redis() -> RedisStore {
    at(&needed("SEMEL_TEST_REDIS_URL"), "plain").connect().await.unwrap()
}

async fn valkey() -> RedisStore {
    at(&needed("SEMEL_TEST_VALKEY_URL"), "valkey").connect().await.unwrap()
}

async fn cluster() -> (RedisStore, RedisCluster) {
    let nodes = RedisCluster::start(&REDIS, 3).unwrap();
    let url = format!("redis+cluster://{}", nodes.addresses());
    (at(&url, "cluster").connect().await.unwrap(), nodes)
}

mod plain {
    use super::*;

    subject!(RedisSubject<RedisStore>, (redis().await, ()));

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        keeps_every_promise(redis().await).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        follows_the_protocol::<RedisSubject<RedisStore>>(4);
    }
}

mod cached {
    use super::*;

    type CachedRedisSubject = RedisSubject<Cached<RedisStore>>;

    subject!(CachedRedisSubject, (Cached::new(redis().await, 1000), ()));

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        keeps_every_promise(Cached::new(redis().await, 1000)).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        follows_the_protocol::<CachedRedisSubject>(2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_promise_is_kept_on_valkey() {
    keeps_every_promise(valkey().await).await;
}

mod on_a_cluster {
    use super::*;

    type RedisClusterSubject = RedisSubject<RedisStore, RedisCluster>;

    subject!(RedisClusterSubject, cluster().await);

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        let (store, _nodes) = cluster().await;
        keeps_every_promise(store).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        follows_the_protocol::<RedisClusterSubject>(1);
    }
}
