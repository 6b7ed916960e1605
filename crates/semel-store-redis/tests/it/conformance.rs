//! The Redis store keeps every promise, on real servers of every kind, plain and with a cache.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod common;

use std::time::Duration;

use semel_conformance::{RealTime, Subject, Time};
use semel_core::{Cached, Store};
use semel_servers::{REDIS, RedisCluster, needed};
use semel_store_redis::RedisStore;

use self::common::{at, follows_the_protocol, keeps_every_promise};

/// A store to be compared with the protocol, and what must outlive it.
struct Compared<S, H = ()>(S, RealTime, H);

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

    subject!(Compared<RedisStore>, (redis().await, ()));

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        keeps_every_promise(redis().await).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        follows_the_protocol::<Compared<RedisStore>>(4);
    }
}

mod cached {
    use super::*;

    type OnTest = Compared<Cached<RedisStore>>;

    subject!(OnTest, (Cached::new(redis().await, 1000), ()));

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        keeps_every_promise(Cached::new(redis().await, 1000)).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        follows_the_protocol::<OnTest>(2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_promise_is_kept_on_valkey() {
    keeps_every_promise(valkey().await).await;
}

mod on_a_cluster {
    use super::*;

    type OnTest = Compared<RedisStore, RedisCluster>;

    subject!(OnTest, cluster().await);

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        let (store, _nodes) = cluster().await;
        keeps_every_promise(store).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        follows_the_protocol::<OnTest>(1);
    }
}
