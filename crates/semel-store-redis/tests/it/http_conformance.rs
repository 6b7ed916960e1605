//! The layer keeps what every door promises its callers, over Redis, plain and under a cache.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

#[path = "../../semel-http/tests/it/layered.rs"]
mod layered;

use layered::Layered;
use semel_core::Cached;
use semel_store_redis::RedisStore;

mod plain {
    use super::*;

    semel_conformance::http_tests!(Layered::over(store().await, ()).await);
}

mod under_a_cache {
    use super::*;

    semel_conformance::http_tests!(Layered::over(Cached::new(store().await, 1000), ()).await);
}

/// A store on the real server, with keys of its own.
async fn store() -> RedisStore {
    let url = semel_servers::needed("SEMEL_TEST_REDIS_URL");
    let prefix = format!("kit-{:016x}", rand::random::<u64>());
    RedisStore::builder(&url).prefix(prefix).connect().await.unwrap()
}
