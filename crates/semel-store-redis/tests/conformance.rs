//! The Redis store keeps every promise, on a real server.

use std::time::Duration;

use semel_conformance::{RealTime, Subject, Time, state_machine};
use semel_core::Store;
use semel_store_redis::RedisStore;

struct Plain(RedisStore, RealTime);

async fn store() -> RedisStore {
    let url = std::env::var("SEMEL_TEST_REDIS_URL");
    let url = url.expect("SEMEL_TEST_REDIS_URL is not set; run it through cargo xtask test");
    let prefix = format!("conformance-{}", std::process::id());
    RedisStore::builder(&url).prefix(prefix).connect().await.expect("connects")
}

impl Subject for Plain {
    async fn open() -> Self {
        Self(store().await, RealTime::default())
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

mod plain {
    use super::*;

    semel_conformance::store_tests!((store().await, RealTime::default()));

    #[test]
    fn every_answer_follows_the_protocol() {
        state_machine::<Plain>(8, 30);
    }
}
