//! NATS KV store of semel: one truth for a fleet of processes, in a JetStream bucket.
//!
//! - **First seen: one trip**, a publish that expects the key to be absent. Everything else is read from
//!   the stream's leader, decided by the pure steps, and written only if the key is still as it was read.
//! - **Many in flight**: the requests of a runtime go over one connection, in one write where they come together; each is
//!   answered when its own reply is there.
//! - **No clock decides a lease**: a claim is taken over when this process has seen it unchanged for 1.1
//!   leases, see `sightings.rs`. Retention is judged by the time the server gave the message.
//! - **Nothing is forgotten early**: a bucket that evicts, ages or keeps its messages in memory is refused.
//!   When the promise ends is said in `docs/stores/nats.md`.
//! - **Other processes hear** of every change by a consumer of the bucket. That is a hint; polling decides.
//!
//! [`NatsStore`] is all there is to it.

mod bucket;
mod bucket_client;
mod capacity;
mod change_feed;
mod check;
mod clock;
mod config;
mod connection;
mod error;
mod fast_path;
mod jetstream_api;
mod list;
mod maintenance;
mod names;
mod pipeline;
mod purge;
mod request;
mod rfc3339;
mod runtime_connections;
mod settings;
mod sightings;
mod slow_path;
mod store;
mod subject_pages;
mod unacknowledged;
mod url;
mod value;

pub use config::NatsStoreBuilder;
pub use store::NatsStore;
