//! Dead letters in a table of PostgreSQL.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::future::join_all;
use semel_consumer::{
    Message,
    dead_letter::{
        DeadLetter, DeadLetterQueue, DeadLetterReason, DeadLetterSink, PgDeadLetters,
        PgDeadLettersBuilder,
    },
};
use semel_core::{ErrorKind, KeyHash};
use semel_faults::{Fault, FaultProxy};
use semel_store_postgres::PostgresStore;
use tokio_postgres::{Client, NoTls};

/// A schema of one test. It is removed at the end of a test that passes.
struct Schema {
    client: Client,
    url: String,
    name: String,
}

impl Schema {
    async fn new() -> Self {
        let url = semel_servers::needed("SEMEL_TEST_POSTGRES_URL");
        let name = format!("letters_{:016x}", rand::random::<u64>());
        Self { client: client(&url).await, url, name }
    }

    /// Letters over a connection of the PostgreSQL store, whose search path is empty.
    fn builder(&self, url: String) -> PgDeadLettersBuilder {
        let connect = move || PostgresStore::builder(&*url).maintenance_connection();
        PgDeadLetters::builder(connect).schema(&*self.name)
    }

    fn letters(&self) -> PgDeadLetters {
        self.builder(self.url.clone()).build().unwrap()
    }

    async fn installed(&self) -> PgDeadLetters {
        let letters = self.letters();
        letters.install().await.unwrap();
        letters
    }

    /// Runs statements, in which `{s}` is the schema.
    async fn sql(&self, statements: &str) {
        self.client.batch_execute(&statements.replace("{s}", &self.name)).await.unwrap();
    }

    async fn remove(self) {
        self.sql("DROP SCHEMA {s} CASCADE").await;
    }
}

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A letter that became one this many microseconds after a fixed time.
fn letter(id: &str, micros: u64) -> DeadLetter {
    let first_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let message = Message {
        published_at: Some(first_at),
        position: "ORDERS/17".to_owned(),
        ..Message::new("orders", &b"\x00\xff\"canary\\"[..])
            .with_header("binary", &b"\xfe"[..])
            .with_id("m\u{0}1")
    };
    DeadLetter {
        id: id.to_owned(),
        key: Some(KeyHash::from_bytes([7; 32])),
        event_id: Some("order\u{0}1".to_owned()),
        reason: DeadLetterReason::Failed,
        class: "decl\u{0}ined".to_owned(),
        error: "no\u{0} \"money\" \u{1F4B8}".to_owned(),
        attempts: 3,
        first_at,
        last_at: first_at + Duration::from_micros(micros),
        consumer: "billing".to_owned(),
        source: "nats ORDERS/billing".to_owned(),
        message: Arc::new(message),
    }
}

async fn ids(letters: &PgDeadLetters, after: Option<&str>, limit: usize) -> Vec<String> {
    letters.list(after, limit).await.unwrap().into_iter().map(|letter| letter.id).collect()
}

#[tokio::test]
async fn a_letter_is_kept_without_a_change() {
    let schema = Schema::new().await;
    let (letters, letter) = (schema.installed().await, letter("a", 123_456));
    letters.publish(&letter).await.unwrap();
    let kept = schema.letters().get("a").await.unwrap().unwrap();
    assert_eq!(kept.to_json(), letter.to_json());
    let tombstone = Arc::new(Message::tombstone("customers"));
    letters.publish(&DeadLetter { message: tombstone, ..self::letter("t", 1) }).await.unwrap();
    assert!(letters.get("t").await.unwrap().unwrap().message.is_tombstone);
    assert!(letters.get("b").await.unwrap().is_none());
    let query = format!(
        "SELECT reason, class, attempts FROM {}.semel_dead_letters WHERE id = 'a'",
        schema.name
    );
    let row = schema.client.query_one(&query, &[]).await.unwrap();
    let (reason, class, attempts): (&str, &str, i64) = (row.get(0), row.get(1), row.get(2));
    assert_eq!((reason, class, attempts), ("failed", "decl\u{fffd}ined", 3));
    schema.remove().await;
}

#[tokio::test]
async fn letters_are_listed_oldest_first_and_page_by_page() {
    let schema = Schema::new().await;
    let letters = schema.installed().await;
    for (id, micros) in [("d", 4), ("b", 2), ("Z", 2), ("a", 3)] {
        letters.publish(&letter(id, micros)).await.unwrap();
    }
    assert_eq!(ids(&letters, None, 10).await, ["Z", "b", "a", "d"]);
    assert_eq!(ids(&letters, None, 2).await, ["Z", "b"]);
    assert_eq!(ids(&letters, Some("b"), usize::MAX).await, ["a", "d"]);
    assert_eq!(ids(&letters, Some("d"), 2).await, Vec::<String>::new());
    let error = letters.list(Some("e"), 2).await.unwrap_err();
    assert!(error.to_string().contains("list again"), "{error}");
    schema.remove().await;
}

#[tokio::test]
async fn a_letter_replaces_an_earlier_one_and_a_removal_spares_a_later_one() {
    let schema = Schema::new().await;
    let letters = schema.installed().await;
    let (first, second) = (letter("a", 1), letter("a", 2));
    letters.publish(&first).await.unwrap();
    letters.publish(&second).await.unwrap();
    assert_eq!(ids(&letters, None, 10).await, ["a"]);
    assert!(!letters.remove(&first).await.unwrap());
    assert!(letters.get("a").await.unwrap().unwrap().is_copy_of(&second));
    // A consumer's clock counts nanoseconds, the table microseconds.
    let in_memory = DeadLetter { last_at: second.last_at + Duration::from_nanos(999), ..second };
    assert!(letters.remove(&in_memory).await.unwrap());
    assert!(!letters.remove(&in_memory).await.unwrap());
    schema.remove().await;
}

#[tokio::test]
async fn many_processes_may_install_and_publish_at_once() {
    let schema = Schema::new().await;
    let installs = join_all((0..6).map(|_| async { schema.letters().install().await }));
    assert!(installs.await.iter().all(Result::is_ok));
    let letters = schema.installed().await;
    let publishing = (0..50).map(|at| {
        let letters = letters.clone();
        async move { letters.publish(&letter(&format!("id-{at}"), at)).await }
    });
    assert!(join_all(publishing).await.iter().all(Result::is_ok));
    assert_eq!(ids(&letters, None, 100).await.len(), 50);
    schema.remove().await;
}

#[tokio::test]
async fn a_check_names_what_is_missing_and_the_fix() {
    let schema = Schema::new().await;
    let check = async |letters: &PgDeadLetters| {
        let error = letters.check().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        error.to_string()
    };
    let letters = schema.letters();
    let missing = check(&letters).await;
    assert!(missing.contains("install()") && missing.contains("semel_dead_letters"), "{missing}");
    letters.publish(&letter("a", 1)).await.unwrap_err();

    schema.sql("CREATE SCHEMA {s}; CREATE TABLE {s}.other (id text PRIMARY KEY)").await;
    let other = schema.builder(schema.url.clone()).table("other").build().unwrap();
    assert!(check(&other).await.contains("another schema or table"));
    assert!(other.install().await.is_err(), "the table of another application is not changed");

    letters.install().await.unwrap();
    letters.check().await.unwrap();
    assert!(ids(&letters, None, 10).await.is_empty(), "a check leaves nothing");
    schema.remove().await;
}

#[tokio::test]
async fn a_check_finds_missing_rights_and_read_only_servers() {
    let schema = Schema::new().await;
    schema.installed().await;
    schema
        .sql("CREATE ROLE {s} LOGIN; GRANT USAGE ON SCHEMA {s} TO {s}; GRANT SELECT ON ALL TABLES IN SCHEMA {s} TO {s}")
        .await;
    let as_role = schema.url.replace("postgres@", &format!("{}@", schema.name));
    let letters = schema.builder(as_role).build().unwrap();
    let error = letters.check().await.unwrap_err();
    assert!(error.to_string().contains("grant the role"), "{error}");
    schema.sql("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {s} TO {s}").await;
    letters.check().await.unwrap();

    let url = format!("{}?options=-c%20default_transaction_read_only%3Don", schema.url);
    let connect = move || {
        let url = url.clone();
        async move { Ok(Arc::new(client(&url).await)) }
    };
    let read_only = PgDeadLetters::builder(connect).schema(&*schema.name).build().unwrap();
    let error = read_only.check().await.unwrap_err();
    assert!(error.to_string().contains("primary"), "{error}");
    schema.sql("DROP OWNED BY {s}; DROP ROLE {s}").await;
    schema.remove().await;
}

#[tokio::test]
async fn a_lost_connection_is_opened_again() {
    let schema = Schema::new().await;
    schema.installed().await;
    let url = format!("{}?application_name={}", schema.url, schema.name);
    let letters = schema.builder(url).build().unwrap();
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '{s}'";
    let kill = kill.replace("{s}", &schema.name);
    for at in 0..5 {
        letters.publish(&letter("a", at)).await.unwrap();
        let killed: i64 = schema.client.query_one(&kill, &[]).await.unwrap().get(0);
        assert_eq!(killed, 1, "there is one connection");
    }
    assert!(letters.remove(&letter("a", 4)).await.unwrap());
    schema.remove().await;
}

/// Publishes until it succeeds: a loaded machine may exceed a short timeout.
async fn publish(letters: &PgDeadLetters, letter: &DeadLetter) {
    let publishing = async {
        while letters.publish(letter).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), publishing).await.expect("it is published");
}

#[tokio::test]
async fn a_server_that_does_not_answer_fails_the_call_in_time() {
    let schema = Schema::new().await;
    schema.installed().await;
    let (head, rest) = schema.url.rsplit_once(':').unwrap();
    let (port, database) = rest.split_once('/').unwrap();
    let proxy = FaultProxy::start(port.parse().unwrap()).unwrap();
    let url = format!("{head}:{}/{database}", proxy.port());
    let letters = schema.builder(url).call_timeout(Duration::from_millis(300)).build().unwrap();
    publish(&letters, &letter("a", 1)).await;
    for fault in [Fault::BlackHole, Fault::OneWay] {
        proxy.set(fault);
        let second = letter("a", 2);
        let publishing = tokio::time::timeout(Duration::from_secs(30), letters.publish(&second));
        let error = publishing.await.expect("in time").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        proxy.set(Fault::None);
        publish(&letters, &letter("a", 3)).await;
    }
    assert!(schema.letters().get("a").await.unwrap().unwrap().is_copy_of(&letter("a", 3)));
    schema.remove().await;
}

#[tokio::test]
async fn a_damaged_row_is_named() {
    let schema = Schema::new().await;
    let letters = schema.installed().await;
    letters.publish(&letter("a", 1)).await.unwrap();
    schema.sql(r#"UPDATE {s}.semel_dead_letters SET letter = '{"canary": 1}'"#).await;
    for error in [letters.get("a").await.unwrap_err(), letters.list(None, 1).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let text = error.to_string();
        assert!(
            text.contains("\"a\"") && text.contains(&schema.name) && !text.contains("canary"),
            "{text}"
        );
    }
    schema.remove().await;
}

#[tokio::test]
async fn nothing_secret_is_shown() {
    let url = "postgres://u:canary@127.0.0.1:1/d";
    let connect = move || PostgresStore::builder(url).maintenance_connection();
    let letters = PgDeadLetters::builder(connect).build().unwrap();
    let error = letters.publish(&letter("a", 1)).await.unwrap_err();
    let shown = format!("{error} {error:?} {letters:?} {}", letters.name());
    assert!(!shown.contains("canary"), "{shown}");
}
