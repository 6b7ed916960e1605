//! Arbiter and failover over real servers keep every promise, with and without a cache around them.

use std::time::Duration;

use semel_conformance::{RealTime, Subject, Time};
use semel_core::{Arbiter, Cached, Failover, Store};
use semel_servers::needed;
use semel_store_postgres::PostgresStore;
use semel_store_redis::{RedisFront, RedisStore};

use crate::{
    postgres_store::Schema,
    redis_store::{at, follows_the_protocol, keeps_every_promise},
};

/// A store to be compared with the protocol, and the schema that must outlive it.
struct LayeredSubject<S>(S, RealTime, #[expect(dead_code, reason = "dropped with it")] Schema);

macro_rules! subject {
    ($store:ty, $open:expr) => {
        impl Subject for LayeredSubject<$store> {
            async fn open() -> Self {
                let (store, schema) = $open;
                Self(store, RealTime::default(), schema)
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
    at(&needed("SEMEL_TEST_REDIS_URL"), "layers").connect().await.unwrap()
}

mod arbiter {
    use super::*;

    type OnTest = Arbiter<RedisFront, PostgresStore>;

    async fn open() -> (OnTest, Schema) {
        let schema = Schema::new();
        let (redis, table) = (at(&needed("SEMEL_TEST_REDIS_URL"), "layers"), schema.store().await);
        (Arbiter::new(redis.connect_front(&table).await.unwrap(), table), schema)
    }

    subject!(OnTest, open().await);
    subject!(Cached<OnTest>, {
        let (store, schema) = open().await;
        (Cached::new(store, 1000), schema)
    });

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        let (store, _schema) = open().await;
        keeps_every_promise(store).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept_under_a_cache() {
        let (store, _schema) = open().await;
        keeps_every_promise(Cached::new(store, 1000)).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        follows_the_protocol::<LayeredSubject<OnTest>>(3);
    }

    #[test]
    fn every_answer_follows_the_protocol_under_a_cache() {
        follows_the_protocol::<LayeredSubject<Cached<OnTest>>>(2);
    }
}

mod failover {
    use super::*;

    type OnTest = Failover<RedisStore, PostgresStore>;

    async fn open() -> (OnTest, Schema) {
        let schema = Schema::new();
        let store = Failover::builder(redis().await, schema.store().await);
        (store.allow_duplicate_execution_on_failover(true).build().unwrap(), schema)
    }

    subject!(OnTest, open().await);

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept_while_both_answer() {
        let (store, _schema) = open().await;
        keeps_every_promise(store).await;
    }

    #[test]
    fn every_answer_follows_the_protocol_while_both_answer() {
        follows_the_protocol::<LayeredSubject<OnTest>>(2);
    }
}
