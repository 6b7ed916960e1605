//! Redis and Valkey store of semel: one truth for a fleet of processes.
//!
//! - **First seen, replay, mismatch: one trip** (`SET … NX GET PX`), or two in a cluster under `Hold`; what was
//!   released, is busy or has lapsed takes one more, by a script on one key. Calls that come at the same time
//!   share a trip.
//! - **The server's clock judges**: a claim's TTL is its lease, see `value.rs`.
//! - **Nothing is forgotten early**: an evicting `maxmemory-policy`, a replica and an old server are
//!   refused at every connect (in a cluster, among its primaries). When the promise ends is said in
//!   `docs/stores/redis.md`.
//! - **Other processes hear** of a key's end by publish and subscribe. That is a hint; polling decides.
//!
//! Standalone, Sentinel and Cluster; TLS and ACL users. [`RedisStore`] is the store. [`RedisFront`] holds
//! copies of another store's outcomes, as the front of an [`Arbiter`](semel_core::Arbiter).

mod change_feed;
mod check;
mod clock;
mod config;
mod connection;
mod error;
mod fast_path;
mod granted_claims;
mod list;
mod maintenance;
mod meta;
mod names;
mod purge;
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
