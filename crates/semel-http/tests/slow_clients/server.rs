//! The server, in a process of its own: what it takes up is not mixed with what its clients do.

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

use crate::promises::{BUDGET, HEAD_START, MIB, PART, READ_TIMEOUT, raise_open_files};

/// The first argument of the server's process.
pub(crate) const ROLE: &str = "serve";
/// What the kernel may hold of an answer, and hyper before it stops reading and writing: little, so that
/// an answer nobody reads stays where it can be measured.
const SOCKET_BUFFER: u32 = 16 * 1024;
const HYPER_BUFFER: usize = 16 * 1024;
/// How an answer of [`MIB`] comes from the handler.
pub(crate) const PIECE: usize = 16 * 1024;

/// A running server. It ends when this is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Child,
    /// The server ends when nobody holds the other side, also when this process is killed.
    _leash: ChildStdin,
}

/// What a process takes up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) resident: usize,
    pub(crate) peak: usize,
}

impl Server {
    /// Runs this very binary in another process.
    pub(crate) fn start() -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .arg(ROLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let leash = process.stdin.take().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { address, process, _leash: leash }
    }

    pub(crate) fn memory(&self) -> Memory {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let kib = |name| -> usize {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        Memory { resident: kib("VmRSS:") * 1024, peak: kib("VmHWM:") * 1024 }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The server's process: ends with its standard input.
pub(crate) fn run() {
    raise_open_files();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.spawn(serve(service(folder.path())));
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Closed until `GET /open`.
type Gate = watch::Sender<bool>;

fn service(folder: &Path) -> Router {
    let engine = Engine::builder().store(EmbeddedStore::open(folder).unwrap()).build().unwrap();
    let policy = RoutePolicy::api().read_timeout(READ_TIMEOUT).wait(Duration::from_secs(60));
    let layer = IdempotencyLayer::builder(engine)
        .principal(Anonymous)
        .policy(policy)
        .buffer_bytes(BUDGET)
        .build()
        .unwrap();
    let gate = Gate::new(false);
    let guarded = Router::new()
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
        .with_state(InProcess { guarded: guarded.clone(), gate })
        .merge(guarded)
}

/// Does not make a piece before it is asked for.
fn large_answer() -> Body {
    let pieces = stream::iter(0..MIB / PIECE);
    Body::from_stream(pieces.map(|_| Ok::<_, Infallible>(Bytes::from(vec![b'x'; PIECE]))))
}

/// Holds its body until the gate is opened.
async fn gated(State(gate): State<Gate>, body: Bytes) -> String {
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

/// Where clients come from for which there are no descriptors.
#[derive(Clone)]
struct InProcess {
    guarded: Router,
    gate: Gate,
}

/// Makes `count` slow requests here. They hold what they get until the gate is opened.
async fn in_process(
    State(InProcess { guarded, gate }): State<InProcess>,
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
        let (answer, mut gate) = (guarded.clone().oneshot(request), gate.subscribe());
        tokio::spawn(async move {
            let _held = answer.await;
            gate.wait_for(|open| *open).await.map(|_| ())
        });
    }
}

/// So much of a body, and then nothing.
fn stalling(bytes: usize) -> Body {
    let piece = async move { Ok::<_, Infallible>(Bytes::from(vec![b'x'; bytes])) };
    Body::from_stream(stream::once(piece).chain(stream::pending()))
}
