//! The driver's errors as errors of semel. Details of the server's message are left out, because they may quote a row.

use std::{error::Error as StdError, time::Duration};

use semel_core::{Error, ErrorKind};
use tokio_postgres::error::{Error as DriverError, SqlState};

/// Explains errors of statements on one table.
#[derive(Debug)]
pub(super) struct Explain {
    pub(super) table: String,
}

impl Explain {
    pub(super) fn statement(&self, driver: &DriverError) -> Error {
        let Some(db) = driver.as_db_error() else { return unavailable(driver) };
        let (message, code, table) = (db.message(), db.code().code(), &self.table);
        let fix = match code {
            "42P01" | "3F000" => format!("; create the table {table} with `install()`"),
            "42703" | "42P10" | "42804" => {
                format!("; {table} is not a table of dead letters: choose another schema or table")
            }
            "42501" => format!("; grant the role SELECT, INSERT, UPDATE and DELETE on {table}"),
            "53100" => "; free some disk on the server".to_owned(),
            _ => String::new(),
        };
        let is_full = [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].contains(db.code());
        let kind = match code {
            _ if is_full => ErrorKind::Full,
            "42P01" | "3F000" | "42703" | "42P10" | "42804" | "42501" => ErrorKind::Invalid,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, format!("dead letters: postgres: {message} (SQLSTATE {code}){fix}"))
    }
}

/// True if the connection must not be used again, and another one may do better.
pub(super) fn is_lost(driver: &DriverError) -> bool {
    // Connection failures, shutdowns, and a server that became a replica.
    let has_class =
        |code: &SqlState| ["08", "57P", "25006"].iter().any(|class| code.code().starts_with(class));
    driver.is_closed() || driver.code().is_none_or(has_class)
}

/// The driver's message and its source; neither quotes a URL or a value.
fn unavailable(driver: &DriverError) -> Error {
    let cause = match driver.source() {
        Some(source) => source.to_string(),
        None => driver.to_string(),
    };
    Error::new(
        ErrorKind::Unavailable,
        format!("dead letters: postgres: the connection failed: {cause}"),
    )
}

pub(super) fn timed_out(what: &str, limit: Duration) -> Error {
    let what = format!(
        "dead letters: postgres: {what} took longer than {limit:?}; is the server overloaded?"
    );
    Error::new(ErrorKind::Unavailable, what)
}

pub(super) fn unexpected_reply() -> Error {
    Error::new(ErrorKind::Corrupt, "dead letters: postgres: unexpected reply")
}
