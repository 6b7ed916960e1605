//! `semel worker`: the consumer of `semel-consumer` around an HTTP endpoint. [`run()`] is all that the binary calls, and
//! [`open`] opens sources and dead letters by URL, for `semel dead-letters`, too; [`examine`] looks at them for
//! `semel doctor`.
//!
//! `handler` posts an event and says what the response means, `consumer` builds the consumer from the settings, and
//! `readiness` is what `/readyz` shows beside the store.
//!
//! This crate is internal to the binary: it is not published. Its settings are read and checked by `semel-service`.

mod consumer;
mod demo;
pub mod examine;
mod handler;
mod metrics;
pub mod open;
mod readiness;
mod rotation;
mod run;

pub use self::run::run;
