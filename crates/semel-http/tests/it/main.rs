//! What the layer promises beside the kit.
#![cfg(feature = "axum")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod connections;
mod fingerprints;
mod held;
mod http2;
mod inner;
mod keys;
mod layer;
mod lost;
mod modes;
mod nested;
mod observe;
mod ours;
mod outcomes;
mod refusals;
mod replays;
mod scene;
mod settings;
mod streams;
mod unprotected;
mod waiters;
