//! Tests of the layer: the conformance suite over each store, and what the layer promises beyond it.
#![cfg(feature = "axum")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod connections;
mod fingerprints;
mod handlers;
mod harness;
mod hold_routes;
mod http2;
mod inner_service;
mod keys;
mod layered;
mod max_run;
mod memory_bounds;
mod modes;
mod nested_routers;
mod observe;
mod operator_outcomes;
mod refusals;
mod replays;
mod reserved_headers;
mod settings;
#[cfg(target_os = "linux")]
mod slow_clients;
mod streams;
mod unprotected;
mod waiters;
