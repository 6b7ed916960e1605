//! A store of one test on a server that all tests share.

use std::{process, thread};

use semel_faults::FaultProxy;
use semel_servers::needed;
use tokio_postgres::NoTls;

use crate::harness::{CommandOutput, Setup, TestUpstream, command, run_command};

/// A schema of PostgreSQL, or a prefix of Redis or NATS, that no other test uses.
#[derive(Debug)]
pub(crate) struct SharedStore {
    pub(crate) url: String,
    folder: tempfile::TempDir,
    /// The second server, if two servers are one store.
    second: Option<Box<Self>>,
    /// The variables that name the second server.
    settings: Vec<(&'static str, String)>,
}

/// The namespace of the gateways and commands.
const NAMESPACE: &str = "payments";

impl SharedStore {
    pub(crate) fn postgres() -> Self {
        Self::in_postgres(&needed("SEMEL_TEST_POSTGRES_URL"))
    }

    fn in_postgres(server: &str) -> Self {
        Self::at(server, "schema", &format!("it_{}", unique()))
    }

    pub(crate) fn redis() -> Self {
        Self::in_redis(&needed("SEMEL_TEST_REDIS_URL"))
    }

    fn in_redis(server: &str) -> Self {
        Self::at(server, "prefix", &format!("it-{}", unique()))
    }

    pub(crate) fn nats() -> Self {
        let bucket = format!("{}/semel-tests", needed("SEMEL_TEST_NATS_URL"));
        make_bucket(&bucket);
        Self::at(&bucket, "prefix", &format!("it-{}", unique()))
    }

    /// PostgreSQL with Redis in front of it.
    pub(crate) fn arbiter() -> Self {
        Self::arbiter_over(&needed("SEMEL_TEST_POSTGRES_URL"), &needed("SEMEL_TEST_REDIS_URL"))
    }

    /// The same over servers that the test may stop.
    pub(crate) fn arbiter_over(postgres: &str, redis: &str) -> Self {
        let front = Self::in_redis(redis);
        let mut store = Self::in_postgres(postgres).behind(&front.url);
        store.second = Some(Box::new(front));
        store
    }

    /// The same store with this Redis in front of it.
    pub(crate) fn behind(mut self, front: &str) -> Self {
        self.settings = vec![("SEMEL_FRONT", front.to_owned())];
        self
    }

    /// The URL of the second server.
    pub(crate) fn second(&self) -> &str {
        &self.second.as_ref().unwrap().url
    }

    /// Redis with PostgreSQL behind it.
    pub(crate) fn failover() -> Self {
        Self::failover_over(&needed("SEMEL_TEST_REDIS_URL"))
    }

    /// The same over a Redis that the test may stop.
    pub(crate) fn failover_over(redis: &str) -> Self {
        let (mut store, behind) = (Self::in_redis(redis), Self::postgres());
        let allowed = ("SEMEL_ALLOW_DUPLICATE_EXECUTION_ON_FAILOVER", "true".to_owned());
        store.settings = vec![("SEMEL_FAILOVER", behind.url.clone()), allowed];
        store.second = Some(Box::new(behind));
        store
    }

    fn at(server: &str, parameter: &str, name: &str) -> Self {
        let join = if server.contains('?') { '&' } else { '?' };
        let url = format!("{server}{join}{parameter}={name}");
        let folder = tempfile::tempdir().unwrap();
        Self { url, folder, second: None, settings: Vec::new() }
    }

    /// A gateway on this store, in front of `upstream`.
    pub(crate) fn to(&self, upstream: &TestUpstream) -> Setup {
        self.of(Setup::to(upstream))
    }

    /// The same gateway, on this store.
    pub(crate) fn of(&self, setup: Setup) -> Setup {
        let setup = self.settings.iter().fold(setup, |it, (name, value)| it.variable(name, value));
        setup
            .without("--store")
            .variable("SEMEL_STORE", &self.url)
            .flag("--namespace", NAMESPACE)
            .switch("--migrate")
    }

    /// A gateway on this store that reaches Redis through a proxy.
    pub(crate) fn through(&self, proxy: &FaultProxy, upstream: &TestUpstream) -> Setup {
        let (name, url) = self.redis_setting();
        let (real, proxied) = (port(url).to_string(), proxy.port().to_string());
        self.to(upstream).variable(name, url.replacen(&real, &proxied, 1))
    }

    /// A proxy to the Redis of this store.
    pub(crate) fn proxy(&self) -> FaultProxy {
        FaultProxy::start(port(self.redis_setting().1)).unwrap()
    }

    fn redis_setting(&self) -> (&'static str, &str) {
        match self.second.as_deref() {
            Some(front) if self.is_postgres() => ("SEMEL_FRONT", &front.url),
            _ => ("SEMEL_STORE", &self.url),
        }
    }

    /// Runs `semel` with these arguments on this store.
    pub(crate) async fn semel(&self, words: &[&str]) -> CommandOutput {
        let mut command = command(self.folder.path());
        command.args(words).env("SEMEL_STORE", &self.url).env("SEMEL_NAMESPACE", NAMESPACE);
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        run_command(command).await
    }

    /// What a successful command prints.
    pub(crate) async fn stdout(&self, words: &[&str]) -> String {
        let ended = self.semel(words).await;
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        ended.stdout
    }

    /// The same as JSON, one value for each line.
    pub(crate) async fn json(&self, words: &[&str]) -> Vec<serde_json::Value> {
        let text = self.stdout(&[words, &["--json"]].concat()).await;
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Executes statements on the second server; `{t}` stands for the table.
    pub(crate) async fn sql_on_second(&self, statements: &str) {
        let (server, schema) = self.second().split_once("?schema=").unwrap();
        let statements = statements.replace("{t}", &format!("{schema}.idempotency_keys"));
        let (client, connection) = tokio_postgres::connect(server, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&statements).await.unwrap();
    }

    pub(crate) fn has_tables(&self) -> bool {
        self.is_postgres() || self.second.as_deref().is_some_and(Self::is_postgres)
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }
}

/// The port in `scheme://host:port/rest`.
fn port(url: &str) -> u16 {
    let host = url.split(['/', '?']).nth(2).unwrap();
    host.rsplit(':').next().unwrap().parse().unwrap()
}

/// Creates the bucket: operator commands do not create one.
fn make_bucket(bucket: &str) {
    let bucket: semel::StoreUrl = format!("{bucket}?prefix=made").parse().unwrap();
    // Not in the test's runtime, which may not be blocked.
    let making = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(bucket.open(&semel::StoreOptions::default())).map(drop)
    });
    making.join().unwrap().unwrap();
}

/// Drops the schema of the test. Records on other servers expire.
impl Drop for SharedStore {
    fn drop(&mut self) {
        let Some((server, schema)) = self.url.split_once("?schema=") else { return };
        let (server, drop) = (server.to_owned(), format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
        // Not in the test's runtime, which may not be blocked.
        let dropping = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(&server, NoTls).await?;
                tokio::spawn(connection);
                client.batch_execute(&drop).await
            })
        });
        if !matches!(dropping.join(), Ok(Ok(()))) {
            eprintln!("the schema {schema} is still there");
        }
    }
}

fn unique() -> String {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        time::{SystemTime, UNIX_EPOCH},
    };
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    format!("{now:x}_{:x}_{:x}", process::id(), NEXT.fetch_add(1, Relaxed))
}
