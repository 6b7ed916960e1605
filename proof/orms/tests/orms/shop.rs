//! Who ships orders, over each of the two.

use std::error::Error;

use deadpool_postgres::{Manager, Pool};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use sea_orm::{Database, DatabaseConnection};
use semel::inbox::{Claimed, Done, InboxEvent, InboxTx, InboxVariant, PgInbox};
use sqlx::PgPool;
use tokio_postgres::NoTls;

use crate::scene::Scene;

pub(crate) trait Shop: Sized {
    async fn open(scene: &Scene, variant: InboxVariant) -> Self;

    async fn ship(
        &mut self,
        event: &InboxEvent,
        order: &str,
    ) -> Result<Done<String>, Box<dyn Error + Send + Sync>>;

    /// What another transaction is told.
    async fn claim_in(&self, tx: &mut impl InboxTx, event: &InboxEvent) -> Claimed;
}

pub(crate) struct Diesel {
    connection: AsyncPgConnection,
    inbox: PgInbox<Pool>,
}

impl Shop for Diesel {
    async fn open(scene: &Scene, variant: InboxVariant) -> Self {
        let manager = Manager::new(scene.url.parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(1).build().unwrap();
        let inbox = PgInbox::builder(pool).schema(&scene.schema).variant(variant);
        let inbox = inbox.install(true).build().await;
        let connection = AsyncPgConnection::establish(&scene.url).await.unwrap();
        Self { connection, inbox: inbox.unwrap() }
    }

    async fn ship(
        &mut self,
        event: &InboxEvent,
        order: &str,
    ) -> Result<Done<String>, Box<dyn Error + Send + Sync>> {
        semel_orms::diesel_async::ship(&mut self.connection, &self.inbox, event, order).await
    }

    async fn claim_in(&self, tx: &mut impl InboxTx, event: &InboxEvent) -> Claimed {
        self.inbox.claim_in(tx, event).await.unwrap()
    }
}

pub(crate) struct SeaOrm {
    database: DatabaseConnection,
    inbox: PgInbox<PgPool>,
}

impl Shop for SeaOrm {
    async fn open(scene: &Scene, variant: InboxVariant) -> Self {
        let database = Database::connect(&scene.url).await.unwrap();
        let pool = database.get_postgres_connection_pool().clone();
        let inbox = PgInbox::builder(pool).schema(&scene.schema).variant(variant);
        let inbox = inbox.install(true).build().await;
        Self { database, inbox: inbox.unwrap() }
    }

    async fn ship(
        &mut self,
        event: &InboxEvent,
        order: &str,
    ) -> Result<Done<String>, Box<dyn Error + Send + Sync>> {
        semel_orms::sea_orm::ship(&self.database, &self.inbox, event, order).await
    }

    async fn claim_in(&self, tx: &mut impl InboxTx, event: &InboxEvent) -> Claimed {
        self.inbox.claim_in(tx, event).await.unwrap()
    }
}
