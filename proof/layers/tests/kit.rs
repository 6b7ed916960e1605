//! The HTTP layer keeps what every door promises its callers, over layers on real servers.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

#[path = "../../../crates/semel-store-postgres/tests/common/mod.rs"]
mod common;
#[path = "../../../crates/semel-http/tests/door/mod.rs"]
mod door;

use common::Schema;
use door::Layered;
use semel_core::{Arbiter, Cached, Failover};
use semel_store_postgres::PostgresStore;
use semel_store_redis::{RedisFront, RedisStore, RedisStoreBuilder};

mod arbiter {
    use super::*;

    semel_conformance::http_tests!({
        let schema = Schema::new();
        Layered::over(arbiter(&schema).await, schema).await
    });
}

mod arbiter_under_a_cache {
    use super::*;

    semel_conformance::http_tests!({
        let schema = Schema::new();
        Layered::over(Cached::new(arbiter(&schema).await, 1000), schema).await
    });
}

mod failover {
    use super::*;

    semel_conformance::http_tests!({
        let schema = Schema::new();
        let store = Failover::builder(redis().await, schema.store().await);
        let store = store.allow_duplicate_execution_on_failover(true).build().unwrap();
        Layered::over(store, schema).await
    });
}

async fn redis() -> RedisStore {
    builder().connect().await.unwrap()
}

async fn arbiter(schema: &Schema) -> Arbiter<RedisFront, PostgresStore> {
    let table = schema.store().await;
    Arbiter::new(builder().connect_front(&table).await.unwrap(), table)
}

/// A Redis with keys of its own.
fn builder() -> RedisStoreBuilder {
    let url = semel_servers::needed("SEMEL_TEST_REDIS_URL");
    RedisStore::builder(&url).prefix(format!("kit-{:016x}", rand::random::<u64>()))
}
