//! The inbox in a transaction of tokio-postgres.

use tokio_postgres::{
    Client, Error as Driver, Transaction,
    types::{ToSql, Type},
};

use crate::transaction::{InboxTx, TxError};

impl From<Driver> for TxError {
    fn from(error: Driver) -> Self {
        let code = error.code().map(|code| code.code().to_owned());
        Self::new(code, error)
    }
}

/// Uses an unnamed statement: one round trip, and no prepared statement stays on a connection that a pooler may share.
pub(crate) async fn query_text(
    client: &Client,
    statement: &str,
    parameters: &[&str],
) -> Result<Option<String>, TxError> {
    let typed: Vec<(&(dyn ToSql + Sync), Type)> =
        parameters.iter().map(|it| (it as &(dyn ToSql + Sync), Type::TEXT)).collect();
    let rows = client.query_typed(statement, &typed).await?;
    Ok(rows.first().and_then(|row| row.get(0)))
}

impl InboxTx for Transaction<'_> {
    async fn query_text(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        query_text(self.client(), statement, parameters).await
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        Ok(self.batch_execute(statements).await?)
    }
}
