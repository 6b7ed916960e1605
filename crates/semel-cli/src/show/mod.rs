//! What operators are shown: tables for people, JSON for programs. Bodies only when they are asked for.

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
    time::{ago, both, length, now},
};

use serde_json::Value;

/// One value on one line.
pub(crate) fn line(value: &Value) -> String {
    format!("{value}\n")
}
