//! What `semel gateway` promises, asked of the real binary over real sockets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod demo;
mod early;
mod errors;
mod failures;
mod framing;
mod gone;
mod harness;
mod kit;
mod lives;
mod odd_upstreams;
mod operators;
mod principal;
mod proxying;
mod resting;
mod rotation;
mod settings;
mod shared;
mod slow;
mod spellings;
mod starting;
mod uploads;
