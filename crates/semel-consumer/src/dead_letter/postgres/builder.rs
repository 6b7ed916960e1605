//! The settings of [`PgDeadLetters`].

use std::{fmt, future::Future, ops::Deref, sync::Arc, time::Duration};

use semel_core::{Error, Result};
use tokio_postgres::Client;

use super::{
    PgDeadLetters, PgQueue,
    connection::{Connect, Connected, PgConnection},
    error,
    sql::LetterStatements,
};

/// Settings of [`PgDeadLetters`].
#[must_use]
pub struct PgDeadLettersBuilder {
    connect: Connect,
    schema: String,
    table: String,
    call_timeout: Duration,
}

impl PgDeadLetters {
    /// Begins with how a connection is opened. `connect` is called again after a loss. It also has to run the
    /// connection in a task, and decides about TLS.
    pub fn builder<F, Fut, C>(connect: F) -> PgDeadLettersBuilder
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<C>> + Send + 'static,
        C: Deref<Target = Client> + Send + Sync + 'static,
    {
        let connect: Connect = Box::new(move || {
            let connecting = connect();
            Box::pin(async move { Ok(Arc::new(connecting.await?) as Connected) })
        });
        PgDeadLettersBuilder {
            connect,
            schema: PgDeadLettersBuilder::SCHEMA.to_owned(),
            table: PgDeadLettersBuilder::TABLE.to_owned(),
            call_timeout: PgDeadLettersBuilder::CALL_TIMEOUT,
        }
    }
}

impl PgDeadLettersBuilder {
    /// The default schema.
    pub const SCHEMA: &str = "public";
    /// The default table.
    pub const TABLE: &str = "semel_dead_letters";
    /// How long a statement may take by default.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

    /// Sets the schema: 1 to 48 characters of a-z, 0-9 and `_`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets the table: 1 to 48 characters of a-z, 0-9 and `_`.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Sets how long a statement may take. Connecting may take as long, and at least ten seconds.
    pub const fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Checks the settings. It does not connect.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) with the setting that is wrong.
    pub fn build(self) -> Result<PgDeadLetters> {
        check_name("schema", &self.schema)?;
        check_name("table", &self.table)?;
        if self.call_timeout.is_zero() {
            return Err(Error::invalid("dead letters: call_timeout: it must be longer than zero"));
        }
        let statements = LetterStatements::new(&self.schema, &self.table);
        let explain = error::Explain { table: statements.table.clone() };
        let connection = PgConnection::new(self.connect, self.call_timeout, explain);
        Ok(PgDeadLetters(Arc::new(PgQueue { connection, statements })))
    }
}

impl fmt::Debug for PgDeadLettersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgDeadLettersBuilder")
            .field("schema", &self.schema)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

/// A name that is safe to stand in a statement.
fn check_name(what: &str, name: &str) -> Result<()> {
    const MAX: usize = 48;
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if first && name.bytes().all(rest) && name.len() <= MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "dead letters: {what}: use 1 to {MAX} characters of a-z, 0-9 and _, the first one not a digit"
    )))
}

#[cfg(test)]
mod tests {
    use semel_core::ErrorKind;

    use super::*;

    fn builder() -> PgDeadLettersBuilder {
        PgDeadLetters::builder(|| async {
            Err::<Arc<Client>, _>(Error::new(ErrorKind::Unavailable, "no server"))
        })
    }

    #[test]
    fn a_name_that_needs_quoting_is_refused() {
        let long = "a".repeat(49);
        for name in ["", "1a", "A", "a-b", "a\"b", "a.b", "a b", "ä", "a;", &long] {
            let error = builder().schema(name).build().unwrap_err();
            assert!(error.to_string().contains("schema"), "{name}: {error}");
            let error = builder().table(name).build().unwrap_err();
            assert!(error.to_string().contains("table"), "{name}: {error}");
        }
        assert!(
            builder()
                .call_timeout(Duration::ZERO)
                .build()
                .unwrap_err()
                .to_string()
                .contains("call_timeout")
        );
        builder().build().unwrap();
    }

    #[tokio::test]
    async fn the_error_of_the_connection_is_the_error_of_the_call() {
        use crate::dead_letter::DeadLetterSink;

        let error = builder().build().unwrap().check().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::Unavailable, "no server")
        );
    }
}
