//! A schema for each test, with a table of shipments and an inbox.

use std::thread;

use semel::inbox::InboxEvent;
use tokio_postgres::{Client, NoTls};

pub(crate) struct ShopDatabase {
    pub(crate) schema: String,
    /// With this schema first on the search path.
    pub(crate) url: String,
}

impl ShopDatabase {
    pub(crate) async fn new() -> Self {
        let (server, schema) = (server(), format!("test_{:032x}", rand::random::<u128>()));
        let url = format!("{server}?options=-c%20search_path%3D{schema}");
        let tables = format!(
            "CREATE SCHEMA {schema}; CREATE TABLE {schema}.shipments (order_id text CHECK (order_id <> ''))"
        );
        client(&server).await.batch_execute(&tables).await.unwrap();
        Self { schema, url }
    }

    pub(crate) async fn client(&self) -> Client {
        client(&self.url).await
    }

    /// The numbers of shipments and of records.
    pub(crate) async fn shipments_and_records(&self) -> (i64, i64) {
        let count =
            "SELECT (SELECT count(*) FROM shipments), (SELECT count(*) FROM processed_events)";
        let row = self.client().await.query_one(count, &[]).await.unwrap();
        (row.get(0), row.get(1))
    }
}

impl Drop for ShopDatabase {
    fn drop(&mut self) {
        let drop = format!("DROP SCHEMA {} CASCADE", self.schema);
        // On its own thread, because this may be dropped inside a runtime.
        let dropped = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async { client(&server()).await.batch_execute(&drop).await })
        });
        if !matches!(dropped.join(), Ok(Ok(()))) {
            eprintln!("left behind: {}", self.schema);
        }
    }
}

fn server() -> String {
    semel_servers::needed("SEMEL_TEST_POSTGRES_URL")
}

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) fn event() -> InboxEvent {
    InboxEvent::new("order-42", "OrderPlaced").unwrap()
}
