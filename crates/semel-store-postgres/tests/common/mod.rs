//! A schema for each test, dropped at its end, so that suites run side by side on one server.

#![allow(dead_code, reason = "every test file uses some of it")]

pub(crate) mod clock;

use std::{fmt, thread, time::Duration};

use async_trait::async_trait;
use semel_conformance::{RealTime, Time};
use semel_core::{
    Claim, ClaimRequest, Fingerprint, KeyHash, Lease, Nonce, OnLostOwner, Span, Store, Terms,
};
use semel_store_postgres::{PostgresStore, PostgresStoreBuilder};
use tokio_postgres::{Client, NoTls};

pub(crate) fn url() -> String {
    semel_servers::needed("SEMEL_TEST_POSTGRES_URL")
}

fn name() -> String {
    format!("test_{:032x}", rand::random::<u128>())
}

/// A schema that only one test uses.
pub(crate) struct Schema {
    pub(crate) url: String,
    pub(crate) name: String,
}

impl Schema {
    pub(crate) fn new() -> Self {
        Self::at(url())
    }

    pub(crate) fn at(url: String) -> Self {
        Self { url, name: name() }
    }

    /// The URL with a setting for every connection.
    pub(crate) fn url_with(&self, setting: &str) -> String {
        let setting = setting.replace('=', "%3D").replace(',', "%2C");
        format!("{}?options=-c%20{setting}", self.url)
    }

    /// A store in it, with few connections.
    pub(crate) fn builder(&self) -> PostgresStoreBuilder {
        PostgresStore::builder(&self.url).schema(&self.name).connections(2).migrate(true)
    }

    pub(crate) async fn store(&self) -> PostgresStore {
        self.builder().connect().await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        client(&self.url).await
    }

    /// Runs statements, in which `{t}` is the table.
    pub(crate) async fn sql(&self, statements: &str) {
        self.client().await.batch_execute(&self.named(statements)).await.unwrap();
    }

    /// The number that a query comes to, in which `{t}` is the table.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.client().await.query_one(&self.named(query), &[]).await.unwrap().get(0)
    }

    pub(crate) fn named(&self, statements: &str) -> String {
        statements.replace("{t}", &format!("{}.idempotency_keys", self.name))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        run_apart(self.url.clone(), format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name));
    }
}

/// A database that only one test uses.
pub(crate) struct Database {
    name: String,
}

impl Database {
    pub(crate) async fn new() -> Self {
        let name = name();
        client(&url()).await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        Self { name }
    }

    pub(crate) fn url(&self) -> String {
        let url = url();
        let (server, _) = url.rsplit_once('/').unwrap();
        format!("{server}/{}", self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        run_apart(url(), format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

/// On its own thread, since the caller may be dropped inside a runtime.
fn run_apart(url: String, statement: String) {
    let what = statement.clone();
    let ran = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let running = async { client(&url).await.batch_execute(&statement).await };
            tokio::time::timeout(Duration::from_secs(10), running).await
        })
    });
    if !matches!(ran.join(), Ok(Ok(Ok(())))) {
        eprintln!("failed to run: {what}");
    }
}

pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A clock, and a value that has to live as long as the store.
pub(crate) struct TimeWithGuard<T, H> {
    time: T,
    _guard: H,
}

impl<H> TimeWithGuard<RealTime, H> {
    pub(crate) fn real(guard: H) -> Self {
        Self { time: RealTime::default(), _guard: guard }
    }
}

#[async_trait]
impl<T: Time, H: Send + Sync> Time for TimeWithGuard<T, H> {
    async fn pass(&self, span: Duration) {
        self.time.pass(span).await;
    }
}

impl<T, H> fmt::Debug for TimeWithGuard<T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeWithGuard").finish_non_exhaustive()
    }
}

pub(crate) fn key() -> KeyHash {
    KeyHash::from_bytes(rand::random())
}

pub(crate) fn claim_of(key: KeyHash) -> ClaimRequest {
    ClaimRequest {
        key,
        fingerprint: Fingerprint::of_bytes(b"order"),
        nonce: Nonce::random(),
        terms: Terms {
            lease: Span::from_millis(30_000),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: Span::from_millis(86_400_000),
            failure_retention: Span::from_millis(3_600_000),
        },
        labels: None,
    }
}

pub(crate) async fn granted(store: &dyn Store, request: &ClaimRequest) -> Lease {
    match store.claim(request).await.unwrap() {
        Claim::Granted(lease) => lease,
        other => panic!("not granted but {other:?}"),
    }
}

/// Waits until the condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, so: impl Fn() -> F) {
    let holds = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, holds).await.unwrap_or_else(|_| panic!("never: {what}"));
}
