//! How commands show records: tables for people, JSON for programs. Bodies are shown on request only.

mod outcome;
mod record;
mod table;
mod time;

pub(crate) use self::{
    record::{
        ShowOptions, clear_labels, details, is_owner_lost, json, or_anonymous, sealed_with, state,
        state_now,
    },
    table::{TextTable, plain},
    time::{ago, both, length, now, rfc3339, timestamp},
};

use serde_json::Value;

/// A JSON value on one line.
pub(crate) fn line(value: &Value) -> String {
    format!("{value}\n")
}
