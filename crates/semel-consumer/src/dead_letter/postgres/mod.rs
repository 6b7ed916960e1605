//! Dead letters in a PostgreSQL table: one row for each letter.

mod builder;
mod connection;
mod error;
mod sql;

use std::{fmt, sync::Arc, time::SystemTime};

use async_trait::async_trait;
use semel_core::{Error, Result};
use tokio_postgres::types::Type;

pub use self::builder::PgDeadLettersBuilder;
use self::{connection::PgConnection, sql::LetterStatements};
use super::{DeadLetter, DeadLetterQueue, DeadLetterSink, no_letter_to_list_after, rfc3339};

/// Dead letters in a PostgreSQL table. A clone is another handle of the same connection.
///
/// It uses one connection, opened when it is needed and again after a loss. Concurrent calls share it.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use semel_consumer::dead_letter::PgDeadLetters;
/// use semel_core::{Error, ErrorKind};
/// use tokio_postgres::NoTls;
///
/// # async fn example() -> semel_core::Result<()> {
/// let connect = || async {
///     let connected = tokio_postgres::connect("postgres://app@db.example/app", NoTls).await;
///     let (client, connection) = connected.map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
///     tokio::spawn(connection);
///     Ok(Arc::new(client))
/// };
/// let letters = PgDeadLetters::builder(connect).build()?;
/// letters.install().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PgDeadLetters(Arc<PgQueue>);

struct PgQueue {
    connection: PgConnection,
    statements: LetterStatements,
}

impl PgDeadLetters {
    /// Creates the table and its schema if they do not exist, and checks the table. Processes may call it at the same
    /// time.
    ///
    /// # Errors
    ///
    /// When the role may not create them, or another table has the name.
    pub async fn install(&self) -> Result<()> {
        self.0.connection.run(&self.0.statements.install).await?;
        self.check().await
    }

    /// The letters in the rows that a statement returns.
    async fn letters(
        &self,
        statement: &str,
        parameters: &[connection::Parameter<'_>],
    ) -> Result<Vec<DeadLetter>> {
        let rows = self.0.connection.query(statement, parameters).await?;
        let letter = |row: &tokio_postgres::Row| {
            let json: &str = row.try_get(1).map_err(|_| error::unexpected_reply())?;
            DeadLetter::from_json(json.as_bytes()).map_err(|error| {
                let (table, id) =
                    (&self.0.statements.table, row.try_get::<_, &str>(0).unwrap_or_default());
                let what = format!(
                    "dead letters: the row {id:?} of {table}: {error}; restore it, or delete it"
                );
                Error::new(error.kind(), what)
            })
        };
        rows.iter().map(letter).collect()
    }

    /// Where a letter stands in the list.
    async fn position(&self, id: &str) -> Result<SystemTime> {
        let rows =
            self.0.connection.query(&self.0.statements.position, &[(&id, Type::TEXT)]).await?;
        let row = rows.first().ok_or_else(|| no_letter_to_list_after(id))?;
        row.try_get(0).map_err(|_| error::unexpected_reply())
    }
}

/// Without the connection, whose settings may hold a password.
impl fmt::Debug for PgDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgDeadLetters")
            .field("table", &self.0.statements.table)
            .finish_non_exhaustive()
    }
}

/// The time of a letter as the table keeps it, so that a comparison with a time in the table is exact.
fn to_microseconds(time: SystemTime) -> SystemTime {
    rfc3339::from_micros(rfc3339::micros(time))
}

/// A text without the one character that PostgreSQL cannot keep. The JSON of the letter keeps it, as an escape.
fn column(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[async_trait]
impl DeadLetterSink for PgDeadLetters {
    async fn publish(&self, letter: &DeadLetter) -> Result<()> {
        let json = letter.to_json();
        let json = std::str::from_utf8(&json).map_err(|_| error::unexpected_reply())?;
        let (first_at, last_at) =
            (to_microseconds(letter.first_at), to_microseconds(letter.last_at));
        let attempts = i64::from(letter.attempts);
        let (reason, class) = (letter.reason.as_str(), column(&letter.class));
        let (consumer, source) = (column(&letter.consumer), column(&letter.source));
        let event_id = letter.event_id.as_deref().map(column);
        self.0
            .connection
            .query(
                &self.0.statements.put,
                &[
                    (&letter.id, Type::TEXT),
                    (&last_at, Type::TIMESTAMPTZ),
                    (&first_at, Type::TIMESTAMPTZ),
                    (&attempts, Type::INT8),
                    (&reason, Type::TEXT),
                    (&class, Type::TEXT),
                    (&consumer, Type::TEXT),
                    (&source, Type::TEXT),
                    (&event_id, Type::TEXT),
                    (&json, Type::TEXT),
                ],
            )
            .await
            .map(drop)
    }

    async fn check(&self) -> Result<()> {
        let rows = self.0.connection.query(sql::IS_READ_ONLY, &[]).await?;
        let read_only = rows.first().and_then(|row| row.try_get(0).ok());
        if read_only != Some(false) {
            return Err(Error::invalid(
                "dead letters: the PostgreSQL server is a replica or read-only; give the address of the primary",
            ));
        }
        self.0.connection.run(&self.0.statements.check).await
    }

    fn name(&self) -> String {
        format!("postgres table {}", self.0.statements.table)
    }
}

#[async_trait]
impl DeadLetterQueue for PgDeadLetters {
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<DeadLetter>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let Some(after) = after else {
            return self.letters(&self.0.statements.first_page, &[(&limit, Type::INT8)]).await;
        };
        let last_at = self.position(after).await?;
        let parameters: [connection::Parameter<'_>; 3] =
            [(&last_at, Type::TIMESTAMPTZ), (&after, Type::TEXT), (&limit, Type::INT8)];
        self.letters(&self.0.statements.next_page, &parameters).await
    }

    async fn get(&self, id: &str) -> Result<Option<DeadLetter>> {
        Ok(self.letters(&self.0.statements.get, &[(&id, Type::TEXT)]).await?.pop())
    }

    async fn remove(&self, letter: &DeadLetter) -> Result<bool> {
        let (last_at, attempts) = (to_microseconds(letter.last_at), i64::from(letter.attempts));
        let parameters: [connection::Parameter<'_>; 3] =
            [(&letter.id, Type::TEXT), (&last_at, Type::TIMESTAMPTZ), (&attempts, Type::INT8)];
        Ok(!self.0.connection.query(&self.0.statements.remove, &parameters).await?.is_empty())
    }
}
