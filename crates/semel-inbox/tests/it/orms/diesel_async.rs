//! The inbox in a transaction of diesel-async.

use std::error::Error as StdError;

use deadpool_postgres::Pool;
use diesel::{
    ExpressionMethods, OptionalExtension, QueryableByName, insert_into,
    pg::Pg,
    result::{DatabaseErrorKind, Error},
    sql_query,
    sql_types::{Nullable, Text},
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use semel::{
    Outcome,
    inbox::{Claimed, Done, InboxEvent, InboxTx, PgInbox, TxError},
};

use self::schema::shipments;

mod schema {
    diesel::table! {
        shipments (order_id) { order_id -> Text }
    }
}

/// Ships an order once, however often its event is delivered.
///
/// # Errors
///
/// When a statement fails. Nothing is written then. Only if the commit failed it may have happened, and the next copy
/// of the event gets its result.
pub async fn ship(
    connection: &mut AsyncPgConnection,
    inbox: &PgInbox<Pool>,
    event: &InboxEvent,
    order: &str,
) -> Result<Done<String>, Box<dyn StdError + Send + Sync>> {
    let shipping = connection.transaction(async |tx| {
        Ok(match inbox.claim_in(&mut Diesel(tx), event).await? {
            Claimed::New(claim) => {
                let row = shipments::order_id.eq(order);
                insert_into(shipments::table).values(row).execute(tx).await?;
                claim.record(&mut Diesel(tx), &Outcome::json(&order)?).await?;
                Done::Now(order.to_owned())
            }
            Claimed::Duplicate(outcome) => {
                Done::Duplicate(outcome.map(|it| it.decode()).transpose()?)
            }
            Claimed::Busy => Done::Busy,
        })
    });
    shipping.await
}

/// A connection that is in a transaction.
struct Diesel<'c>(&'c mut AsyncPgConnection);

#[derive(QueryableByName)]
struct TextRow {
    #[diesel(sql_type = Nullable<Text>)]
    said: Option<String>,
}

impl InboxTx for Diesel<'_> {
    async fn query_text(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        let query = sql_query(statement).into_boxed::<Pg>();
        let query = parameters.iter().fold(query, |query, it| query.bind::<Text, _>(*it));
        let row = query.get_result::<TextRow>(self.0).await.optional().map_err(tx_error)?;
        Ok(row.and_then(|row| row.said))
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        self.0.batch_execute(statements).await.map_err(tx_error)
    }
}

/// diesel does not expose the `SQLSTATE`. It is derived from diesel's error kind, or from the server's English message.
fn tx_error(error: Error) -> TxError {
    use DatabaseErrorKind::{CheckViolation, SerializationFailure, UnableToSendCommand};
    let code = match &error {
        Error::DatabaseError(UnableToSendCommand, _) => None,
        Error::DatabaseError(SerializationFailure, _) => Some("40001"),
        Error::DatabaseError(CheckViolation, _) => Some("23514"),
        Error::DatabaseError(_, it) if it.message().contains("lock timeout") => Some("55P03"),
        Error::DatabaseError(_, it) if it.message().contains("deadlock") => Some("40P01"),
        _ => Some("XX000"),
    };
    TxError::new(code.map(str::to_owned), error)
}
