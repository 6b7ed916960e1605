//! Tests of the sealing layer.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod at_rest;
mod conformance;
mod harness;
mod opening;
#[path = "../../../semel-store-postgres/tests/common/mod.rs"]
mod postgres;
mod rotation;
