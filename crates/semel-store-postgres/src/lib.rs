//! The PostgreSQL store of semel: claims and outcomes in a table that many processes share.
//!
//! ```text
//! callers ──► queue ──► workers, one connection each ──► fast path      claim, complete, renew
//!                            │                              │ not decided
//!                            │                              ▼
//!                            └──────────────► slow path: read, run the pure step, compare and swap
//! maintenance ──► a connection of its own: list, stats, purge, election
//! change feed ──► a connection of its own: LISTEN and NOTIFY, for waiters and caches of other nodes
//! ```
//!
//! - The server's `clock_timestamp()` is the only clock. Every step is one statement that commits by
//!   itself; no transaction is ever left open.
//! - What the statements of the fast path do not decide, the steps of `semel-core` do: a record is read with
//!   its `xmin`, and written only if that is unchanged.
//! - A caller may drop its call at any time and leaves nothing half done, because workers run the calls.
//! - Every connection refuses a replica, and a table that was first used with another hash secret.
//!
//! The promise ends when the server loses what it committed: `synchronous_commit = off`, `fsync = off`,
//! or a failover to a replica that was not synchronous.
//!
//! ```no_run
//! # async fn example() -> semel_core::Result<()> {
//! use semel_store_postgres::PostgresStore;
//! let store = PostgresStore::builder("postgres://app@db.example/app").migrate(true).connect().await?;
//! # Ok(()) }
//! ```

mod backoff;
mod batch;
mod change_feed;
mod check;
mod config;
mod connection;
mod error;
mod failback_window;
mod fast_path;
mod list;
mod locks;
mod maintenance;
mod meta;
mod migrate;
mod names;
mod pooler;
mod purge;
mod request;
mod runtime_connections;
mod settings;
mod slow_path;
mod sql;
mod sql_types;
mod store;
mod text;
mod tls;
mod url;
mod value;
mod worker;

pub use config::PostgresStoreBuilder;
#[doc(hidden)]
pub use connection::PgConnection;
pub use migrate::Migration;
pub use store::PostgresStore;
