//! semel as its documentation sets it up, with a store that does not become full.

use anyhow::Result;
use axum::Router;
use semel_core::{Engine, MemoryStore};
use semel_http::{Anonymous, IdempotencyLayer};

/// More records than a benchmark makes.
const MAX_RECORDS: usize = 100_000_000;

/// More bytes than these records take.
const MAX_BYTES: usize = 1 << 40;

pub(super) fn guarded(orders: Router) -> Result<Router> {
    let store = MemoryStore::builder().max_entries(MAX_RECORDS).max_bytes(MAX_BYTES).build()?;
    let engine = Engine::builder().store(store).build()?;
    Ok(orders.layer(IdempotencyLayer::builder(engine).principal(Anonymous).build()?))
}
