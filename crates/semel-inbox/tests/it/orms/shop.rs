//! A shop that ships orders over diesel-async, and one over sea-orm.

use std::error::Error;

use deadpool_postgres::{Manager, Pool};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use sea_orm::{Database, DatabaseConnection};
use semel::inbox::{Claimed, Done, InboxEvent, InboxTx, InboxVariant, PgInbox};
use sqlx::PgPool;
use tokio_postgres::NoTls;

use super::database::ShopDatabase;

pub(crate) trait Shop: Sized {
    async fn open(database: &ShopDatabase, variant: InboxVariant) -> Self;

    async fn ship(
        &mut self,
        event: &InboxEvent,
        order: &str,
    ) -> Result<Done<String>, Box<dyn Error + Send + Sync>>;

    /// The reply that another transaction gets.
    async fn claim_in(&self, tx: &mut impl InboxTx, event: &InboxEvent) -> Claimed;
}

pub(crate) struct DieselShop {
    connection: AsyncPgConnection,
    inbox: PgInbox<Pool>,
}

impl Shop for DieselShop {
    async fn open(database: &ShopDatabase, variant: InboxVariant) -> Self {
        let manager = Manager::new(database.url.parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(1).build().unwrap();
        let inbox = PgInbox::builder(pool).schema(&database.schema).variant(variant);
        let inbox = inbox.install(true).build().await;
        let connection = AsyncPgConnection::establish(&database.url).await.unwrap();
        Self { connection, inbox: inbox.unwrap() }
    }

    async fn ship(
        &mut self,
        event: &InboxEvent,
        order: &str,
    ) -> Result<Done<String>, Box<dyn Error + Send + Sync>> {
        super::diesel_async::ship(&mut self.connection, &self.inbox, event, order).await
    }

    async fn claim_in(&self, tx: &mut impl InboxTx, event: &InboxEvent) -> Claimed {
        self.inbox.claim_in(tx, event).await.unwrap()
    }
}

pub(crate) struct SeaOrmShop {
    connection: DatabaseConnection,
    inbox: PgInbox<PgPool>,
}

impl Shop for SeaOrmShop {
    async fn open(database: &ShopDatabase, variant: InboxVariant) -> Self {
        let connection = Database::connect(&database.url).await.unwrap();
        let pool = connection.get_postgres_connection_pool().clone();
        let inbox = PgInbox::builder(pool).schema(&database.schema).variant(variant);
        let inbox = inbox.install(true).build().await;
        Self { connection, inbox: inbox.unwrap() }
    }

    async fn ship(
        &mut self,
        event: &InboxEvent,
        order: &str,
    ) -> Result<Done<String>, Box<dyn Error + Send + Sync>> {
        super::sea_orm::ship(&self.connection, &self.inbox, event, order).await
    }

    async fn claim_in(&self, tx: &mut impl InboxTx, event: &InboxEvent) -> Claimed {
        self.inbox.claim_in(tx, event).await.unwrap()
    }
}
