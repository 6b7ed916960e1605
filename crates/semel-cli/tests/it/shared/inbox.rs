//! `semel purge --inbox` on tables of PostgreSQL.

use tokio_postgres::{Client, NoTls};

use super::SharedStore;
use crate::harness::CommandOutput;

/// A schema with an inbox of each variant, in which some events are old.
struct Tables {
    store: SharedStore,
    schema: String,
    client: Client,
}

const COLUMNS: &str = "processed_at timestamptz NOT NULL DEFAULT now(), occurred_on date, outcome_format smallint,
    failed boolean NOT NULL DEFAULT false, consumer text, event_id text, event_type varchar(100), outcome bytea";

impl Tables {
    async fn new() -> Self {
        let store = SharedStore::postgres();
        let (server, schema) = store.url.split_once("?schema=").unwrap();
        let (client, connection) = tokio_postgres::connect(server, NoTls).await.unwrap();
        tokio::spawn(connection);
        let schema = schema.to_owned();
        let tables = format!(
            "CREATE SCHEMA {schema}; SET search_path = {schema};
             CREATE TABLE minimal (event_id uuid PRIMARY KEY, event_type varchar(100) NOT NULL,
               processed_at timestamptz NOT NULL DEFAULT now());
             CREATE TABLE whole ({COLUMNS}, PRIMARY KEY (consumer, event_id));
             CREATE TABLE parts ({COLUMNS}, PRIMARY KEY (consumer, event_id, occurred_on))
               PARTITION BY RANGE (occurred_on);
             CREATE TABLE users (id int);
             INSERT INTO minimal SELECT gen_random_uuid(), 't', now() - n * interval '1 day'
               FROM generate_series(0, 39) AS n;
             INSERT INTO whole (consumer, event_id, event_type, processed_at)
               SELECT 'c', n::text, 't', now() - n * interval '1 day' FROM generate_series(0, 39) AS n"
        );
        client.batch_execute(&tables).await.unwrap();
        Self { store, schema, client }
    }

    fn purge<'a>(table: &'a str, retention: &'a str) -> [&'a str; 5] {
        ["purge", "--inbox", table, "--retention", retention]
    }

    async fn semel(&self, table: &str, retention: &str) -> CommandOutput {
        self.store.semel(&Self::purge(&format!("{}.{table}", self.schema), retention)).await
    }

    async fn json(&self, table: &str, retention: &str) -> serde_json::Value {
        let table = format!("{}.{table}", self.schema);
        self.store.json(&Self::purge(&table, retention)).await.remove(0)
    }

    async fn count(&self, table: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {}.{table}", self.schema);
        self.client.query_one(&count, &[]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn old_events_of_an_inbox_are_deleted_and_counted() {
    let tables = Tables::new().await;
    for (table, variant) in [("minimal", "minimal"), ("whole", "full")] {
        let did = tables.json(table, "30d").await;
        assert_eq!((&did["deleted"], &did["variant"]), (&10.into(), &variant.into()), "{did}");
        let again = tables.semel(table, "30d").await;
        let output = format!("deleted 0 events of {}.{table}\n", tables.schema);
        assert_eq!((again.code, again.stdout), (Some(0), output));
        assert_eq!(tables.count(table).await, 30);
    }
}

#[tokio::test]
async fn partitions_of_an_inbox_are_made_and_dropped() {
    let tables = Tables::new().await;
    let made = tables.json("parts", "12d").await;
    let expected = ("partitioned", 1 + 7, 0);
    let found = (made["variant"].as_str().unwrap(), &made["partitions_made"], &made["deleted"]);
    assert_eq!(found, (expected.0, &expected.1.into(), &expected.2.into()), "{made}");
    let schema = &tables.schema;
    let old = format!(
        "DO $$ DECLARE day date; BEGIN
           FOREACH day IN ARRAY ARRAY[current_date - 13, current_date - 14, current_date - 5] LOOP
             EXECUTE format('CREATE TABLE {schema}.parts_p%s PARTITION OF {schema}.parts FOR VALUES FROM (%L) TO (%L)',
               to_char(day, 'YYYYMMDD'), day, day + 1);
           END LOOP;
         END $$"
    );
    tables.client.batch_execute(&old).await.unwrap();
    let output = tables.semel("parts", "10d").await;
    let expected = format!("dropped 2 partitions of {}.parts, and made 0\n", tables.schema);
    assert_eq!((output.code, output.stdout), (Some(0), expected));
}

#[tokio::test]
async fn a_table_that_is_no_inbox_is_not_touched() {
    let tables = Tables::new().await;
    let refused = tables.semel("absent", "30d").await;
    refused.assert_stderr(&[1], &["there is no table", "absent", "--inbox", "[SCHEMA.]TABLE"]);
    let refused = tables.semel("users", "30d").await;
    refused.assert_stderr(&[1], &["not the table of an inbox", "inbox.install()"]);
    tables.semel("a-b", "30d").await.assert_stderr(&[1], &["table: use 1 to 48", "--inbox"]);
}

#[tokio::test]
async fn a_purge_of_an_inbox_that_makes_no_sense_names_the_fix() {
    let tables = Tables::new().await;
    let short = tables.semel("whole", "10s").await;
    short.assert_stderr(&[2], &["--retention", "shorter than a minute", "30d"]);
    let late = tables.semel("whole", "6d").await;
    late.assert_stderr(
        &[1],
        &["6 d is shorter", "7 d", "late copy", "source_window", "COMMENT ON"],
    );
    assert_eq!(tables.count("whole").await, 40);
    tables.semel("whole", "soon").await.assert_stderr(&[2], &["--retention", "not a duration"]);
    let store = &tables.store;
    let refused = store.semel(&["purge", "--inbox", "t"]).await;
    refused.assert_stderr(&[2], &["required", "--retention"]);
    store.semel(&["purge", "--retention", "30d"]).await.assert_stderr(&[2], &["--inbox"]);
    let both = [&Tables::purge("t", "30d")[..], &["--limit", "1"]].concat();
    store.semel(&both).await.assert_stderr(&[2], &["--limit", "--inbox"]);
    for url in ["memory:", "file:data"] {
        let words = [&Tables::purge("t", "30d")[..], &["--store", url]].concat();
        store.semel(&words).await.assert_stderr(&[2], &["--store postgres://"]);
    }
    assert_eq!(tables.count("whole").await, 40, "nothing was deleted");
}
