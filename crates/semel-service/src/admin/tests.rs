use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use async_trait::async_trait;
use metrics_exporter_prometheus::PrometheusBuilder;
use semel::{Error, ErrorKind, MemoryStore, Result, Stats, Store, StoreInfo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinHandle,
};

use super::*;

/// A listener under test.
struct TestListener {
    address: SocketAddr,
    draining: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Drop for TestListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A service that depends on its store alone.
struct StoreAlone;

impl ReadinessCheck for StoreAlone {
    fn observed(&self) -> Readiness {
        Ok(())
    }

    fn check(&self) -> BoxFuture<'_, Readiness> {
        Box::pin(std::future::ready(Ok(())))
    }
}

async fn served(token: Option<&str>, store: impl Store) -> TestListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || metrics::counter!("tested_total").increment(7));
    let engine = Engine::builder().store(store).build().unwrap();
    let (draining, watched) = watch::channel(false);
    let token = token.map(|token| AdminToken::new(token).unwrap());
    let admin = Arc::new(AdminState::new(token, Metrics::of(&recorder), watched));
    admin.set_open(OpenService { engine, check: Box::new(StoreAlone) });
    let task = tokio::spawn(serve(listener, admin));
    TestListener { address, draining, task }
}

impl TestListener {
    /// Sends a request and reads until the connection closes.
    async fn request(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nHost: semel\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    async fn request_with(&self, path: &str, headers: &str) -> String {
        self.request(&format!("GET {path} HTTP/1.1\r\n{headers}\r\nX-Rest:")).await
    }
}

fn status(response: &str) -> &str {
    &response["HTTP/1.1 ".len()..][..3]
}

fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap().1
}

#[tokio::test]
async fn each_path_answers() {
    let served = served(None, MemoryStore::new()).await;
    let health = served.request("GET /healthz").await;
    assert_eq!((status(&health), body(&health)), ("200", "ok\n"), "{health}");
    let ready = served.request("GET /readyz?verbose").await;
    assert_eq!((status(&ready), body(&ready)), ("200", "ready\n"), "{ready}");
    let metrics = served.request("GET /metrics").await;
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
    assert!(body(&metrics).contains("tested_total 7\n"), "{metrics}");
    let head = served.request("HEAD /metrics").await;
    assert_eq!((status(&head), body(&head)), ("200", ""), "{head}");
}

#[tokio::test]
async fn anything_else_is_refused() {
    let served = served(None, MemoryStore::new()).await;
    let unknown = served.request("GET /").await;
    assert_eq!(status(&unknown), "404", "{unknown}");
    assert!(body(&unknown).contains("/metrics, /healthz and /readyz"), "{unknown}");
    let post = served.request("POST /metrics").await;
    assert_eq!(status(&post), "405", "{post}");
    assert!(post.contains("allow: GET, HEAD"), "{post}");
}

#[tokio::test]
async fn metrics_need_the_token_and_probes_do_not() {
    let served = served(Some("s3cret"), MemoryStore::new()).await;
    for wrong in [
        "X-None: 1",
        "Authorization: Bearer s3cre",
        "Authorization: Bearer s3cretX",
        "Authorization: Basic s3cret",
        "Authorization: s3cret",
        "Authorization: Bearer ",
        "Authorization: Bearer s3cret\r\nAuthorization: Bearer s3cret",
    ] {
        let response = served.request_with("/metrics", wrong).await;
        assert_eq!(status(&response), "401", "{wrong}");
        assert!(response.contains("www-authenticate: Bearer"), "{response}");
        assert!(!response.contains("tested_total"), "{response}");
    }
    let response = served.request_with("/metrics", "authorization: bearer s3cret").await;
    assert!(body(&response).contains("tested_total 7"), "{response}");
    for probe in ["GET /healthz", "GET /readyz"] {
        assert_eq!(status(&served.request(probe).await), "200");
    }
}

#[tokio::test]
async fn draining_is_not_ready_but_healthy() {
    let served = served(None, MemoryStore::new()).await;
    assert_eq!(status(&served.request("GET /readyz").await), "200");
    served.draining.send(true).unwrap();
    let ready = served.request("GET /readyz").await;
    assert_eq!((status(&ready), body(&ready)), ("503", "shutting down\n"), "{ready}");
    assert_eq!(status(&served.request("GET /healthz").await), "200");
}

#[tokio::test]
async fn a_failing_store_is_not_ready_and_probes_share_one_check() {
    let store = Arc::new(FailingStore { calls: AtomicU64::new(0), how: StoreFault::Error });
    let served = served(None, store.clone()).await;
    let started = Instant::now();
    for _ in 0..5 {
        let ready = served.request("GET /readyz").await;
        assert_eq!((status(&ready), body(&ready)), ("503", "the store answers with an error\n"));
    }
    // On a slow machine the five probes may take longer than a result is reused.
    let most = 1 + started.elapsed().as_secs();
    assert!((1..=most).contains(&store.calls.load(SeqCst)));
}

#[tokio::test]
async fn a_store_that_hangs_is_not_ready() {
    let store = FailingStore { calls: AtomicU64::new(0), how: StoreFault::Silence };
    let served = served(None, store).await;
    let ready = served.request("GET /readyz").await;
    assert_eq!((status(&ready), body(&ready)), ("503", "the store does not answer\n"), "{ready}");
    assert_eq!(status(&served.request("GET /healthz").await), "200");
}

#[tokio::test]
async fn more_connections_than_allowed_wait_their_turn() {
    let served = served(None, MemoryStore::new()).await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        idle.push(TcpStream::connect(served.address).await.unwrap());
    }
    let late = served.request("GET /healthz");
    tokio::pin!(late);
    // Idle connections occupy all places: this request is served once they are closed.
    assert!(timeout(Duration::from_millis(50), &mut late).await.is_err());
    drop(idle);
    assert_eq!(status(&late.await), "200");
}

#[tokio::test]
async fn silent_connections_do_not_delay_probes_for_long() {
    let served = served(None, MemoryStore::new()).await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        idle.push(TcpStream::connect(served.address).await.unwrap());
    }
    let late = timeout(10 * HEAD_TIMEOUT, served.request("GET /healthz")).await;
    assert_eq!(status(&late.expect("a response")), "200");
}

#[tokio::test]
async fn a_head_that_does_not_end_is_given_up() {
    let served = served(None, MemoryStore::new()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let endless = format!("GET /healthz HTTP/1.1\r\nX: {}", "x".repeat(4 * HEAD_BYTES));
    // The listener may close while this is written.
    let _ = stream.write_all(endless.as_bytes()).await;
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    assert!(!String::from_utf8_lossy(&response).starts_with("HTTP/1.1 200"));
}

/// A store whose every step fails or hangs.
#[derive(Debug)]
struct FailingStore {
    calls: AtomicU64,
    how: StoreFault,
}

#[derive(Debug)]
enum StoreFault {
    Error,
    Silence,
}

impl FailingStore {
    async fn fail<T: FailureReply>(&self) -> T {
        self.calls.fetch_add(1, SeqCst);
        match self.how {
            StoreFault::Error => T::failure_reply(),
            StoreFault::Silence => std::future::pending().await,
        }
    }
}

trait FailureReply {
    fn failure_reply() -> Self;
}

impl<T> FailureReply for Result<T> {
    fn failure_reply() -> Self {
        Err(Error::new(ErrorKind::Unavailable, "store: in trouble"))
    }
}

impl<T> FailureReply for Vec<T> {
    fn failure_reply() -> Self {
        Self::new()
    }
}

macro_rules! troubled {
    ($($name:ident($request:ty) -> $reply:ty;)*) => {
        #[async_trait]
        impl Store for FailingStore {
            fn info(&self) -> StoreInfo {
                MemoryStore::new().info()
            }
            $(async fn $name(&self, _: $request) -> $reply {
                self.fail().await
            })*
            async fn stats(&self) -> Result<Stats> {
                self.fail().await
            }
        }
    };
}

semel_core::__store_steps!(troubled);
