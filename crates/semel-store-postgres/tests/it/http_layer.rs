//! The HTTP layer over PostgreSQL passes the HTTP conformance suite, plain and under a cache.

use semel_core::Cached;

use crate::{common::Schema, layered::Layered};

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
