//! The inbox in a transaction of sea-orm.

use std::error::Error as StdError;

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, RuntimeErr,
    Statement, TransactionTrait, Value, sea_query::Query,
};
use semel::{
    Outcome,
    inbox::{Claimed, Done, InboxEvent, InboxTx, PgInbox, TxError},
};
use sqlx::PgPool;

/// Ships an order once, however often its event is delivered.
///
/// # Errors
///
/// When a statement fails. Nothing is written then. Only if the commit failed it may have happened, and the next copy
/// of the event gets its result.
pub async fn ship(
    database: &DatabaseConnection,
    inbox: &PgInbox<PgPool>,
    event: &InboxEvent,
    order: &str,
) -> Result<Done<String>, Box<dyn StdError + Send + Sync>> {
    let tx = database.begin().await?;
    let done = match inbox.claim_in(&mut SeaOrm(&tx), event).await? {
        Claimed::New(claim) => {
            let mut insert = Query::insert();
            insert.into_table("shipments").columns(["order_id"]).values([order.into()])?;
            tx.execute(&insert).await?;
            claim.record(&mut SeaOrm(&tx), &Outcome::json(&order)?).await?;
            Done::Now(order.to_owned())
        }
        Claimed::Duplicate(outcome) => Done::Duplicate(outcome.map(|it| it.decode()).transpose()?),
        Claimed::Busy => Done::Busy,
    };
    tx.commit().await?;
    Ok(done)
}

struct SeaOrm<'t>(&'t DatabaseTransaction);

impl InboxTx for SeaOrm<'_> {
    async fn query_text(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        let values = parameters.iter().map(|it| Value::from(*it));
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, statement, values);
        let row = self.0.query_one_raw(statement).await.map_err(tx_error)?;
        row.map(|row| row.try_get_by_index(0)).transpose().map_err(tx_error).map(Option::flatten)
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        self.0.execute_unprepared(statements).await.map(drop).map_err(tx_error)
    }
}

fn tx_error(error: DbErr) -> TxError {
    let code = match &error {
        DbErr::Exec(RuntimeErr::SqlxError(it)) | DbErr::Query(RuntimeErr::SqlxError(it)) => {
            it.as_database_error().and_then(|it| it.code()).map(|code| code.into_owned())
        }
        _ => None,
    };
    TxError::new(code, error)
}
