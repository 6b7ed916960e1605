//! The HTTP layer keeps what every door promises its callers, over sealed records in PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod common;
#[path = "../../semel-http/tests/door/mod.rs"]
mod door;
#[path = "../../semel-store-postgres/tests/common/mod.rs"]
mod postgres;

use common::sealed;
use door::Layered;
use postgres::Schema;

semel_conformance::http_tests!({
    let schema = Schema::new();
    Layered::over(sealed(schema.store().await), schema).await
});
