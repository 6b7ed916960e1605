//! From the driver's errors to semel's, in one place. Details of the server are left out: they may
//! quote a row.

use std::error::Error as StdError;

use semel_core::{Error, ErrorKind};
use tokio_postgres::error::{Error as Driver, SqlState};

use crate::pooler::FIX;

/// What a failed statement calls for.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Nothing happened; the same statement may succeed.
    Again(Error),
    /// Nothing happened: somebody else has locked a record, or all of them.
    Locked,
    /// This is the answer, and the connection is fine.
    Said(Error),
    /// This is the answer, and the connection is not to be used again.
    Lost(Error),
}

impl Trouble {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Again(error) | Self::Said(error) | Self::Lost(error) => error,
            Self::Locked => locked(),
        }
    }

    /// For whom nobody waits: a lock is one more reason to try again.
    pub(crate) fn or_again(self) -> Self {
        match self {
            Self::Locked => Self::Again(locked()),
            Self::Again(_) | Self::Said(_) | Self::Lost(_) => self,
        }
    }
}

/// What another try settles. Keys are unique for `ON CONFLICT`, except against an index that is being built anew
/// beside the one it names.
const AGAIN: [SqlState; 3] = [
    SqlState::T_R_SERIALIZATION_FAILURE,
    SqlState::T_R_DEADLOCK_DETECTED,
    SqlState::UNIQUE_VIOLATION,
];

impl From<Driver> for Trouble {
    fn from(driver: Driver) -> Self {
        let Some(code) = driver.code().cloned() else { return Self::Lost(unavailable(&driver)) };
        if code == SqlState::LOCK_NOT_AVAILABLE {
            return Self::Locked;
        }
        let error = explain(&driver);
        if AGAIN.contains(&code) {
            return Self::Again(error);
        }
        // Connection, shutdown, a server that became a replica, statements it forgot or that changed.
        let lost =
            ["08", "57", "25", "26", "0A", "28"].iter().any(|class| code.code().starts_with(class));
        if lost || driver.is_closed() { Self::Lost(error) } else { Self::Said(error) }
    }
}

/// The error of a statement.
pub(crate) fn explain(driver: &Driver) -> Error {
    let Some(db) = driver.as_db_error() else { return unavailable(driver) };
    let (message, code) = (db.message(), db.code());
    let full = [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].contains(code);
    let kind = if full { ErrorKind::Full } else { ErrorKind::Unavailable };
    let hint = match code.code() {
        "42P01" | "3F000" | "42703" => {
            "; run `semel migrate`, or build the store with `.migrate(true)`"
        }
        "42P07" => "; a table that is not semel's has this name: choose another schema or table",
        "42501" => "; grant the role what docs/stores/postgres.md lists",
        "53100" => "; free some disk on the server",
        // Prepared statements that this connection does not have, or that another client left on it.
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
pub(crate) fn refused(driver: &Driver) -> Error {
    let Some(code) = driver.code() else { return unreachable(driver) };
    let message = driver.as_db_error().map_or("refused", |db| db.message());
    let fix = match code.code() {
        "28P01" | "28000" => "check user and password in the URL, and pg_hba.conf",
        "3D000" => "make the database, or name another in the URL",
        // PgBouncer, which knows `options` from 1.20 on.
        "08P01" if message.starts_with("unsupported startup parameter") => {
            "leave options out of the URL, or connect to the server directly"
        }
        _ => return explain(driver),
    };
    Error::invalid(format!("postgres: {message} (SQLSTATE {}); {fix}", code.code()))
}

fn unreachable(driver: &Driver) -> Error {
    let cause = cause(driver);
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "postgres: cannot connect: {cause}; is the server up, and are host, port and sslmode of the URL right?"
        ),
    )
}

fn unavailable(driver: &Driver) -> Error {
    let cause = cause(driver);
    Error::new(ErrorKind::Unavailable, format!("postgres: the connection failed: {cause}"))
}

/// The driver's own words and what is behind them; neither quotes a URL or a value.
fn cause(driver: &Driver) -> String {
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
        "postgres: somebody else holds a lock on the record (SQLSTATE 55P03), nothing happened; end their transaction (pg_stat_activity shows who is idle in one)",
    )
}

pub(crate) fn contended() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "postgres: too many others changed the key at the same time; nothing happened",
    )
}

pub(crate) fn disconnected(last: Option<&Error>) -> Error {
    let why = last.map(|error| format!(" ({error})")).unwrap_or_default();
    Error::new(ErrorKind::Unavailable, format!("postgres: not connected, reconnecting{why}"))
}

/// What calls are told that have no answer because of `error`: they may have happened.
pub(crate) fn lost(error: &Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable => error.clone(),
        _ => Error::new(ErrorKind::Unavailable, format!("{error}; the call may have happened")),
    }
}
