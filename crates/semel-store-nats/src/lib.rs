//! NATS KV store of semel: records shared by a fleet of processes, in a JetStream bucket.
//!
//! - **A first claim takes one round trip**, a publish that expects the key to be absent. All other requests read
//!   from the stream's leader, let the steps decide, and write only if the key has not changed since the read.
//! - **Many requests are in flight**: the requests of a runtime go over one connection, in one write if they come
//!   together; each gets its reply when it arrives.
//! - **No clock decides about a lease**: a claim is taken over when this process has seen it unchanged for 1.1
//!   leases, see `sightings.rs`. Retention is judged by the server's time of the message.
//! - **No record is lost early**: a bucket that evicts, ages or keeps its messages in memory is refused.
//!   `docs/stores/nats.md` says when records can be lost.
//! - **Changes are delivered** by a consumer of the bucket: waiters and caches subscribe. A message is never proof: its
//!   receiver reads the record, and waiters poll as well.
//!
//! [`NatsStore`] is the store.

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
mod meta;
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
