//! Layers over real servers: conformance, every nesting, and what they promise when a server fails.
//!
//! Each module can be run alone: `cargo test -p semel-layers --test it nestings::`.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod conformance;
mod faults;
mod nestings;

// What the tests of these crates share.
#[path = "../../../../crates/semel-http/tests/it/layered.rs"]
mod layered;
#[path = "../../../../crates/semel-store-nats/tests/common/mod.rs"]
mod nats_store;
#[path = "../../../../crates/semel-store-postgres/tests/common/mod.rs"]
mod postgres_store;
#[path = "../../../../crates/semel-store-redis/tests/common/mod.rs"]
mod redis_store;
