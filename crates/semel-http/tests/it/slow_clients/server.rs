//! The server, in a process of its own, so that its memory is not mixed with that of its clients.

use std::{
    convert::Infallible,
    env, fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path as UrlPath, State},
    http::Request,
    routing::post,
};
use futures_util::stream::{self, StreamExt};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use semel_core::Engine;
use semel_http::{Anonymous, IdempotencyLayer, RoutePolicy};
use semel_store_embedded::EmbeddedStore;
use tokio::{net::TcpSocket, sync::watch};
use tower::ServiceExt;

use super::{BUDGET, HEAD_START, MIB, PART, READ_TIMEOUT, raise_open_files};

/// Set in the environment of the server's process.
const SERVER_PROCESS: &str = "SEMEL_TEST_SLOW_CLIENTS_SERVER";
/// Bytes of an answer that the kernel and hyper may hold. They are small, so that most of an unread answer stays in
/// the layer, where it can be measured.
const SOCKET_BUFFER: u32 = 16 * 1024;
const HYPER_BUFFER: usize = 16 * 1024;
/// The size of the pieces in which the handler sends an answer of [`MIB`].
pub(crate) const PIECE: usize = 16 * 1024;

/// A running server. Dropping it kills the process.
pub(crate) struct SlowClientServer {
    pub(crate) address: SocketAddr,
    process: Child,
    /// The server ends when this pipe is closed, which includes that the test's process is killed.
    _stdin: ChildStdin,
}

/// The memory of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessMemory {
    pub(crate) resident: usize,
    pub(crate) peak: usize,
}

impl SlowClientServer {
    /// Runs this test binary in another process, as a server.
    pub(crate) fn start() -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["slow_clients::server::serve_process", "--exact", "--nocapture"])
            .env(SERVER_PROCESS, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            line.unwrap().split_once("listening on ").map(|(_, address)| address.parse().unwrap())
        });
        Self { address: address.unwrap(), process, _stdin: stdin }
    }

    pub(crate) fn memory(&self) -> ProcessMemory {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let kib = |name| -> usize {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        ProcessMemory { resident: kib("VmRSS:") * 1024, peak: kib("VmHWM:") * 1024 }
    }
}

impl Drop for SlowClientServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves in the process that [`SlowClientServer::start`] starts, until its standard input ends. In the test process
/// itself it does nothing.
#[test]
fn serve_process() {
    if env::var_os(SERVER_PROCESS).is_none() {
        return;
    }
    raise_open_files();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.spawn(serve(service(folder.path())));
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Closed until `GET /open`.
type OpenGate = watch::Sender<bool>;

fn service(folder: &Path) -> Router {
    let engine = Engine::builder().store(EmbeddedStore::open(folder).unwrap()).build().unwrap();
    let policy = RoutePolicy::api().read_timeout(READ_TIMEOUT).wait(Duration::from_secs(60));
    let layer = IdempotencyLayer::builder(engine)
        .principal(Anonymous)
        .policy(policy)
        .buffer_bytes(BUDGET)
        .build()
        .unwrap();
    let gate = OpenGate::new(false);
    let protected = Router::new()
        .route("/upload", post(async |body: Bytes| body.len().to_string()))
        .route("/answer", post(async || large_answer()))
        .route("/gate", post(gated))
        .with_state(gate.clone())
        .layer(layer);
    Router::new()
        .route(
            "/open",
            post(async |State(service): State<InProcess>| {
                service.gate.send_replace(true);
            }),
        )
        .route("/in-process/{kind}/{count}", post(in_process))
        .with_state(InProcess { protected: protected.clone(), gate })
        .merge(protected)
}

/// Makes each piece when the server reads it.
fn large_answer() -> Body {
    let pieces = stream::iter(0..MIB / PIECE);
    Body::from_stream(pieces.map(|_| Ok::<_, Infallible>(Bytes::from(vec![b'x'; PIECE]))))
}

/// Holds its request body until the gate is opened.
async fn gated(State(gate): State<OpenGate>, body: Bytes) -> String {
    gate.subscribe().wait_for(|open| *open).await.unwrap();
    body.len().to_string()
}

async fn serve(service: Router) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(SOCKET_BUFFER).unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let listener = socket.listen(4096).unwrap();
    println!("listening on {}", listener.local_addr().unwrap());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let mut http = http1::Builder::new();
        http.max_buf_size(HYPER_BUFFER);
        let service = TowerToHyperService::new(service.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move { drop(connection.await) });
    }
}

/// State for requests that the server makes itself.
#[derive(Clone)]
struct InProcess {
    protected: Router,
    gate: OpenGate,
}

/// Makes `count` slow requests. They hold their answers until the gate is opened.
async fn in_process(
    State(InProcess { protected, gate }): State<InProcess>,
    UrlPath((kind, count)): UrlPath<(String, usize)>,
) {
    for number in 0..count {
        let (path, key, body) = match kind.as_str() {
            "upload" => ("/upload", format!("in-process-{number}"), stalling(HEAD_START + PART)),
            "replay" => ("/answer", "recorded".to_owned(), Body::empty()),
            "answer" => ("/answer", format!("in-process-{number}"), Body::empty()),
            other => unreachable!("{other}"),
        };
        let request = Request::post(path).header("idempotency-key", key).body(body).unwrap();
        let (answer, mut gate) = (protected.clone().oneshot(request), gate.subscribe());
        tokio::spawn(async move {
            let _held = answer.await;
            gate.wait_for(|open| *open).await.map(|_| ())
        });
    }
}

/// A body of `bytes` that never ends.
fn stalling(bytes: usize) -> Body {
    let piece = async move { Ok::<_, Infallible>(Bytes::from(vec![b'x'; bytes])) };
    Body::from_stream(stream::once(piece).chain(stream::pending()))
}
