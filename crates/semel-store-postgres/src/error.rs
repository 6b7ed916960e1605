//! Maps the driver's errors to `semel_core::Error`. Details of the server's message are left out, because they may
//! quote a row.

use std::error::Error as StdError;

use semel_core::{Error, ErrorKind};
use tokio_postgres::error::{Error as DriverError, SqlState};

use crate::pooler::FIX;

/// What to do about a failed statement.
#[derive(Debug)]
pub(crate) enum StatementError {
    /// Nothing happened, and the same statement may succeed.
    Retry(Error),
    /// Nothing happened: another transaction has locked a record, or the table.
    Locked,
    /// The statement failed. The connection is fine.
    Failed(Error),
    /// The statement failed, and the connection must not be used again.
    Lost(Error),
}

impl StatementError {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Retry(error) | Self::Failed(error) | Self::Lost(error) => error,
            Self::Locked => locked(),
        }
    }

    /// For statements that no caller waits for: a lock is one more reason to try again.
    pub(crate) fn locked_as_retry(self) -> Self {
        match self {
            Self::Locked => Self::Retry(locked()),
            Self::Retry(_) | Self::Failed(_) | Self::Lost(_) => self,
        }
    }
}

/// Conflicts that another try resolves. `ON CONFLICT` names the primary key's index; while the server rebuilds that
/// index, an insert may violate the new one.
const CONFLICTS: [SqlState; 3] = [
    SqlState::T_R_SERIALIZATION_FAILURE,
    SqlState::T_R_DEADLOCK_DETECTED,
    SqlState::UNIQUE_VIOLATION,
];

impl From<DriverError> for StatementError {
    fn from(driver: DriverError) -> Self {
        let Some(code) = driver.code().cloned() else { return Self::Lost(unavailable(&driver)) };
        if code == SqlState::LOCK_NOT_AVAILABLE {
            return Self::Locked;
        }
        let error = explain(&driver);
        if CONFLICTS.contains(&code) {
            return Self::Retry(error);
        }
        // Connection failures, shutdown, a server that became a replica, prepared statements that are gone or changed.
        let lost =
            ["08", "57", "25", "26", "0A", "28"].iter().any(|class| code.code().starts_with(class));
        if lost || driver.is_closed() { Self::Lost(error) } else { Self::Failed(error) }
    }
}

/// The error of a statement.
pub(crate) fn explain(driver: &DriverError) -> Error {
    let Some(db) = driver.as_db_error() else { return unavailable(driver) };
    let (message, code) = (db.message(), db.code());
    let full = [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].contains(code);
    let kind = if full { ErrorKind::Full } else { ErrorKind::Unavailable };
    let hint = match code.code() {
        "42P01" | "3F000" | "42703" => {
            "; run `semel migrate`, or build the store with `.migrate(true)`"
        }
        "42P07" => "; a table of another application has this name: choose another schema or table",
        "42501" => "; grant the role what docs/stores/postgres.md lists",
        "53100" => "; free some disk on the server",
        // The connection lacks a prepared statement, or has one of another client.
        "26000" | "42P05" => return Error::new(kind, shared_statements(message, code)),
        _ => "",
    };
    Error::new(kind, format!("postgres: {message} (SQLSTATE {}){hint}", code.code()))
}

fn shared_statements(message: &str, code: &SqlState) -> String {
    let code = code.code();
    format!(
        "postgres: {message} (SQLSTATE {code}): a pool shares connections between clients; {FIX}"
    )
}

/// The error of an attempt to connect. Its kind says whether trying again can help.
pub(crate) fn refused(driver: &DriverError) -> Error {
    let Some(code) = driver.code() else { return unreachable(driver) };
    let message = driver.as_db_error().map_or("refused", |db| db.message());
    let fix = match code.code() {
        "28P01" | "28000" => "check user and password in the URL, and pg_hba.conf",
        "3D000" => "make the database, or name another in the URL",
        // From PgBouncer, which supports `options` since 1.20.
        "08P01" if message.starts_with("unsupported startup parameter") => {
            "leave options out of the URL, or connect to the server directly"
        }
        _ => return explain(driver),
    };
    Error::invalid(format!("postgres: {message} (SQLSTATE {}); {fix}", code.code()))
}

fn unreachable(driver: &DriverError) -> Error {
    let cause = cause(driver);
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "postgres: cannot connect: {cause}; is the server up, and are host, port and sslmode of the URL right?"
        ),
    )
}

fn unavailable(driver: &DriverError) -> Error {
    let cause = cause(driver);
    Error::new(ErrorKind::Unavailable, format!("postgres: the connection failed: {cause}"))
}

/// The driver's message and its source; neither quotes a URL or a value.
fn cause(driver: &DriverError) -> String {
    match driver.source() {
        Some(source) => format!("{driver}: {source}")
            .replace(&format!(": {source}: {source}"), &format!(": {source}")),
        None => driver.to_string(),
    }
}

pub(crate) fn timed_out() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "postgres: no answer within the call timeout; the connection is dropped, and the call may have happened",
    )
}

pub(crate) fn locked() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "postgres: another transaction holds a lock on the record (SQLSTATE 55P03), nothing happened; end that transaction (pg_stat_activity shows sessions that are idle in a transaction)",
    )
}

pub(crate) fn contended() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "postgres: too many calls changed the key at the same time; nothing happened",
    )
}

pub(crate) fn disconnected(last: Option<&Error>) -> Error {
    let why = last.map(|error| format!(" ({error})")).unwrap_or_default();
    Error::new(ErrorKind::Unavailable, format!("postgres: not connected, reconnecting{why}"))
}

/// The error of calls that have no reply because of `error`: they may have happened.
pub(crate) fn lost(error: &Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable => error.clone(),
        _ => Error::new(ErrorKind::Unavailable, format!("{error}; the call may have happened")),
    }
}
