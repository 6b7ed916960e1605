//! The PostgreSQL store of semel: claims and outcomes in a table that a fleet shares.
//!
//! ```text
//! callers ──► batcher ──► workers, one connection each ──► hot statements      claim, complete, renew
//!                              │                              │ not decided
//!                              │                              ▼
//!                              └──────────────► read, run the pure step, compare and swap
//! chores  ──► a connection of their own: list, stats, purge, lead
//! bell    ──► a connection of its own: LISTEN and NOTIFY, for who waits on another node
//! ```
//!
//! - The server's `clock_timestamp()` is the only clock. Every step is one statement that commits by
//!   itself; no transaction is ever left open.
//! - What the hot statements do not decide, the steps of `semel-core` do: a record is read with its
//!   `xmin`, and written only if that is unchanged.
//! - A caller that goes away leaves nothing half done, since calls run in workers of their own.
//! - A replica is refused on every connection, and so is a fleet that disagrees about its hash secret.
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
pub use connection::Session;
pub use migrate::Migration;
pub use store::PostgresStore;
