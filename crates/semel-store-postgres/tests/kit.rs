//! The layer keeps what every door promises its callers, over PostgreSQL, plain and under a cache.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod common;
#[path = "../../semel-http/tests/it/layered.rs"]
mod layered;

use common::Schema;
use layered::Layered;
use semel_core::Cached;

mod plain {
    use super::*;

    semel_conformance::http_tests!({
        let schema = Schema::new();
        Layered::over(schema.store().await, schema).await
    });
}

mod under_a_cache {
    use super::*;

    semel_conformance::http_tests!({
        let schema = Schema::new();
        Layered::over(Cached::new(schema.store().await, 1000), schema).await
    });
}
