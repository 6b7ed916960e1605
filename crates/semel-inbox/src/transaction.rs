//! What an inbox needs of a driver: a transaction, a pool of them, and the error of a statement.

use std::{error::Error as StdError, fmt, future::Future};

use semel_core::{Error, ErrorKind};

/// A connection that is in a transaction. It is implemented for sqlx and tokio-postgres. `docs/inbox-orms.md` shows it
/// for other drivers.
pub trait InboxTx: Send {
    /// Runs one statement with text parameters and returns the first column of its row, if there is a row. The column
    /// is a text with the name `said`.
    fn query_text(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> impl Future<Output = Result<Option<String>, TxError>> + Send;

    /// Runs statements without parameters.
    fn run(&mut self, statements: &str) -> impl Future<Output = Result<(), TxError>> + Send;
}

/// A transaction that an inbox begins and ends. Dropping it rolls it back.
pub trait InboxTransaction: InboxTx + Sized {
    /// Commits the transaction, or fails if one of its statements has failed.
    fn commit(self) -> impl Future<Output = Result<(), TxError>> + Send;
    /// Rolls back.
    fn roll_back(self) -> impl Future<Output = Result<(), TxError>> + Send;
}

/// Where transactions come from: `sqlx::PgPool` (feature `sqlx`) or `deadpool_postgres::Pool` (feature `deadpool`).
pub trait InboxPool: Send + Sync {
    /// What a handler writes through.
    type Tx: InboxTransaction;

    /// Begins a transaction and runs the first statement in it, in one round trip if the driver can.
    fn begin(
        &self,
        begin: &'static str,
        statement: &str,
        parameters: &[&str],
    ) -> impl Future<Output = Result<(Self::Tx, Option<String>), TxError>> + Send;

    /// Runs one statement without a transaction.
    fn run(&self, statement: &str) -> impl Future<Output = Result<(), TxError>> + Send;

    /// Runs one statement with text parameters without a transaction, as [`InboxTx::query_text`].
    fn query_text(
        &self,
        statement: &str,
        parameters: &[&str],
    ) -> impl Future<Output = Result<Option<String>, TxError>> + Send;
}

/// The error of a statement.
pub struct TxError {
    code: Option<String>,
    no_connection: bool,
    cause: Box<dyn StdError + Send + Sync>,
}

impl TxError {
    /// An error of a driver, with the `SQLSTATE` if the server sent one.
    pub fn new(code: Option<String>, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { code, no_connection: false, cause: cause.into() }
    }

    /// The pool had no free connection within its own timeout. The inbox does not retry it: another attempt would wait
    /// as long again, and compete with the callers that wait already.
    pub fn no_connection(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { no_connection: true, ..Self::new(None, cause) }
    }

    /// The `SQLSTATE`. `None` when the connection or the pool failed.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// A conflict: nothing happened, and a new transaction may succeed.
    pub(crate) fn is_retryable(&self) -> bool {
        self.code().is_some_and(is_retryable)
    }

    /// The connection is lost or the server shuts down; another connection may work.
    pub(crate) fn is_connection(&self) -> bool {
        let is_lost = |code: &str| {
            ["08", "57P0"].iter().any(|class| code.starts_with(class)) || code == "53300"
        };
        !self.no_connection && self.code().is_none_or(is_lost)
    }

    /// Another transaction held a lock for longer than the lock timeout.
    pub(crate) fn is_locked(&self) -> bool {
        self.code() == Some("55P03")
    }

    /// An earlier statement of the transaction failed, and the transaction was not rolled back.
    pub(crate) fn is_aborted(&self) -> bool {
        self.code() == Some("25P02")
    }

    /// The server refused the statement; the connection works.
    pub(crate) fn is_refusal(&self) -> bool {
        self.code().is_some() && !self.is_connection()
    }

    /// Another session is changing the same table.
    pub(crate) fn is_not_ready(&self) -> bool {
        self.code() == Some("55000")
    }

    /// The date of an event has no partition.
    pub(crate) fn is_without_partition(&self) -> bool {
        self.code() == Some("23514")
    }
}

pub(crate) fn is_retryable(code: &str) -> bool {
    ["40001", "40P01"].contains(&code)
}

/// Without the server's message, which may quote a row. The code is enough.
impl From<TxError> for Error {
    fn from(error: TxError) -> Self {
        if error.no_connection {
            let what = "inbox: the pool had no free connection within its timeout; make the pool larger or \
                        the handlers faster, and check that the server answers";
            return Self::new(ErrorKind::Unavailable, what);
        }
        let Some(code) = error.code() else {
            let what = format!("inbox: the connection failed: {}", error.cause);
            return Self::new(ErrorKind::Unavailable, what);
        };
        let hint = match code {
            "42P01" | "3F000" => "; create the table with `inbox.install()`",
            "42703" | "42704" => "; the table is of another variant than the inbox was built with",
            "42501" => {
                "; grant the role SELECT, INSERT, UPDATE and DELETE on the table; only its owner creates and \
                 drops partitions"
            }
            "55P03" => {
                "; another transaction holds a lock on the table: try again, or end that transaction"
            }
            "23514" => {
                "; the day of the event has no partition: maintenance creates those ahead, and `process` others"
            }
            "57014" => "; the statement_timeout is shorter than the work",
            _ => "",
        };
        let what = format!("inbox: a statement failed (SQLSTATE {code}){hint}");
        let code = Some(code.to_owned());
        Self::new(ErrorKind::Unavailable, what)
            .with_source(TxError::new(code, "the server's message"))
    }
}

impl fmt::Debug for TxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxError").field("code", &self.code).finish_non_exhaustive()
    }
}

impl fmt::Display for TxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.code {
            Some(code) => write!(f, "a statement failed (SQLSTATE {code})"),
            None if self.no_connection => f.write_str("the pool had no free connection"),
            None => f.write_str("the connection failed"),
        }
    }
}

impl StdError for TxError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.cause)
    }
}

/// The `SQLSTATE` of a driver's error, wherever in `error` it is.
pub(crate) fn sqlstate_of(error: &(dyn StdError + 'static)) -> Option<String> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|error| {
        if let Some(error) = error.downcast_ref::<TxError>() {
            return error.code.clone();
        }
        #[cfg(feature = "sqlx")]
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            return crate::drivers::sqlx::sqlstate(error);
        }
        let error = error.downcast_ref::<tokio_postgres::Error>()?;
        error.code().map(|code| code.code().to_owned())
    })
}
