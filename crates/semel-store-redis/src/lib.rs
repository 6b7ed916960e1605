//! Redis and Valkey store of semel: records shared by a fleet of processes.
//!
//! - **A first claim, a replay and a mismatch take one round trip** (`SET … NX GET PX`), or two in a cluster in hold
//!   mode. A claim of a key that was released, is busy or has an ended lease takes one more, with a script on one key.
//!   Concurrent requests share a round trip.
//! - **The server's clock decides**: the TTL of a claim shows its lease, see `value.rs`.
//! - **No record is lost early**: a server that evicts keys, a replica and an old server are refused at every
//!   connect (in a cluster, its primaries are checked). `docs/stores/redis.md` says when records can be lost.
//! - **Changes are published**: waiters and caches in other processes subscribe. A message is never proof: its
//!   receiver reads the record, and waiters poll as well.
//!
//! Standalone, Sentinel and Cluster; TLS and ACL users. [`RedisStore`] is the store. [`RedisFront`] is a replica cache
//! of another store's outcomes, the front of an [`Arbiter`](semel_core::Arbiter).

mod change_feed;
mod check;
mod clock;
mod config;
mod connection;
mod error;
mod fast_path;
mod list;
mod maintenance;
mod meta;
mod names;
mod purge;
mod remembered_claims;
mod replica_cache;
mod replica_request;
mod replica_worker;
mod request;
mod round_trip;
mod runtime_connections;
mod script;
mod script_reply;
mod settings;
mod slow_path;
mod store;
mod url;
mod value;
mod worker;

pub use config::RedisStoreBuilder;
pub use replica_cache::RedisFront;
pub use store::RedisStore;
