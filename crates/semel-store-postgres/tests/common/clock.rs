//! A server clock that only the test moves: a function `clock_timestamp()` that comes first on the search path of
//! the store's connections and so replaces the server's own. Leases then last as long as a test needs them, however
//! busy the machine is.

use std::time::Duration;

use async_trait::async_trait;
use semel_conformance::Time;
use semel_store_postgres::PostgresStore;
use tokio_postgres::Client;

use super::{Schema, client};

pub(crate) struct ServerClock {
    schema: Schema,
    client: Client,
}

impl ServerClock {
    /// A store that uses this clock.
    pub(crate) async fn open(schema: Schema) -> (PostgresStore, Self) {
        let (name, client) = (&schema.name, client(&schema.url).await);
        let make = format!(
            "CREATE SCHEMA {name};
             CREATE TABLE {name}.clock AS SELECT pg_catalog.clock_timestamp() AS now;
             CREATE FUNCTION {name}.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
               AS 'SELECT now FROM {name}.clock'"
        );
        client.batch_execute(&make).await.unwrap();
        let store =
            PostgresStore::builder(schema.url_with(&format!("search_path={name},pg_catalog")))
                .schema(name)
                .connections(2)
                .migrate(true)
                .connect()
                .await
                .unwrap();
        (store, Self { schema, client })
    }
}

#[async_trait]
impl Time for ServerClock {
    async fn pass(&self, span: Duration) {
        let (name, millis) = (&self.schema.name, span.as_millis());
        let pass =
            format!("UPDATE {name}.clock SET now = now + {millis} * interval '1 millisecond'");
        self.client.batch_execute(&pass).await.unwrap();
    }
}
