//! NATS KV store of semel: one truth for a fleet of processes, in a JetStream bucket.
//!
//! - **First seen: one trip**, a publish that expects the key to be absent. Everything else is read from
//!   the stream's leader, decided by the pure steps, and written only if the key is still as it was read.
//! - **Many in flight**: the requests of a runtime go over one connection, in one write where they come together; each is
//!   answered when its own reply is there.
//! - **No clock decides a lease**: a claim is taken over when this process has seen it unchanged for 1.1
//!   leases, see `known.rs`. Retention is judged by the time the server gave the message.
//! - **Nothing is forgotten early**: a bucket that evicts, ages or keeps its messages in memory is refused.
//!   When the promise ends is said in `docs/stores/nats.md`.
//! - **Other processes hear** of every change by a consumer of the bucket. That is a hint; polling decides.
//!
//! [`NatsStore`] is all there is to it.

mod api;
mod bucket;
mod check;
mod cleanup;
mod clock;
mod config;
mod connection;
mod doubt;
mod error;
mod instant;
mod job;
mod known;
mod lane;
mod lead;
mod link;
mod list;
mod names;
mod news;
mod pages;
mod pipe;
mod plan;
mod room;
mod store;
mod target;
mod value;

pub use config::NatsStoreBuilder;
pub use store::NatsStore;
