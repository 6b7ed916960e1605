//! What the store does around the protocol: refusals, locks, migrations, news, faults.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

#[path = "../common/mod.rs"]
mod common;
mod fleet;
mod locks;
mod lost;
mod migrate;
mod pgbouncer;
mod refusals;
mod sizes;
mod tls;
