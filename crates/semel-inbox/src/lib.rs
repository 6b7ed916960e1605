//! The inbox of semel: records events in the transaction that carries out their effect.
//!
//! ```text
//! begin ── insert the event ──┬─ new ──────▶ handler ──▶ commit
//!                             ├─ committed ▶ duplicate, with its recorded outcome
//!                             └─ running ──▶ busy
//! ```
//!
//! [`PgInbox`] keeps the events in a table of the handler's own PostgreSQL database. Effect and record commit
//! together or not at all, so an event takes effect exactly once while its record is kept.
//!
//! - [`PgInbox::process`] runs a handler for one event; [`PgInbox::process_batch`] and [`PgInbox::process_each`] run
//!   one for many events in one transaction.
//! - [`PgInbox::claim_in`] claims an event in a transaction of the caller.
//! - [`PgInbox::maintain_every`] removes old events; [`InboxMaintenance`] does the same for an operator.
//! - [`InboxPool`], [`InboxTransaction`] and [`InboxTx`] are what a driver has to implement. They are implemented for
//!   tokio-postgres, and with the features `sqlx` and `deadpool` for those pools.

mod attempts;
mod batch;
mod builder;
mod claim;
mod done;
mod drivers;
mod event;
mod inbox;
mod maintenance;
mod maintenance_task;
mod operator;
mod partitions;
mod process;
mod schema;
mod sql;
mod table;
mod table_comment;
pub mod telemetry;
mod transaction;

#[cfg(feature = "deadpool")]
pub use self::drivers::deadpool::DeadpoolTx;
#[cfg(feature = "sqlx")]
pub use self::drivers::sqlx::SqlxTx;
pub use self::{
    attempts::{AttemptEnd, CountedAttempt, is_conflict},
    builder::PgInboxBuilder,
    claim::{Claimed, InboxClaim},
    done::{Done, InboxError},
    event::InboxEvent,
    inbox::{InboxContext, InboxOptions, InboxPolicy, PgInbox},
    maintenance::{InboxStats, MaintenanceReport},
    maintenance_task::MaintenanceTask,
    operator::InboxMaintenance,
    schema::InboxVariant,
    transaction::{InboxPool, InboxTransaction, InboxTx, TxError},
};
