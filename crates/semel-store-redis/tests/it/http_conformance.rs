//! The HTTP conformance suite with the layer over a Redis store, plain and with a cache.

#[path = "../../../semel-http/tests/it/layered.rs"]
mod layered;

use layered::Layered;
use semel_core::Cached;
use semel_store_redis::RedisStore;

mod plain {
    use super::*;

    semel_conformance::http_tests!(Layered::over(store().await, ()).await);
}

mod cached {
    use super::*;

    semel_conformance::http_tests!(Layered::over(Cached::new(store().await, 1000), ()).await);
}

/// A store on the shared server, with a prefix that no other test uses.
async fn store() -> RedisStore {
    let url = semel_servers::needed("SEMEL_TEST_REDIS_URL");
    let prefix = format!("http-{:016x}", rand::random::<u64>());
    RedisStore::builder(&url).prefix(prefix).connect().await.unwrap()
}
