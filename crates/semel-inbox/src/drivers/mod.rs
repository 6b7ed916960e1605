//! The inbox over each driver: `InboxTx`, `InboxTransaction` and `InboxPool` for tokio-postgres, deadpool-postgres
//! and sqlx, and a pool of one connection for `InboxMaintenance`.

#[cfg(feature = "deadpool")]
pub(crate) mod deadpool;
pub(crate) mod single_connection;
#[cfg(feature = "sqlx")]
pub(crate) mod sqlx;
pub(crate) mod tokio_postgres;
