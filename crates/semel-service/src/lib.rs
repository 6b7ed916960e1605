//! What every long-running command of the `semel` binary shares: its settings, logs and metrics, the admin
//! listener, signals, and how a store is opened. The operator commands use the settings and the store, too.
//!
//! This crate is internal to the binary: it is not published, and its API follows the binary's needs. It knows
//! nothing of the gateway and the worker except their settings: `semel.toml` is read and checked as a whole by every
//! command, so that one reader knows all of its fields.

pub mod admin;
pub mod bearer;
pub mod listener;
pub mod seal_keys;
pub mod settings;
pub mod signals;
pub mod store;
pub mod telemetry;
