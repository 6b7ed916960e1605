//! Tests of the conformance suites: correct stores pass them, and every planted bug fails one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arbiter;
mod cached;
#[cfg(all(feature = "http", feature = "sources"))]
mod flawed_layer;
#[cfg(all(feature = "http", feature = "sources"))]
mod http_planted_bugs;
mod memory;
mod planted_bugs;
mod slow_store;
#[cfg(feature = "sources")]
mod sources;
