//! The upstream: a minimal HTTP server in a process of its own.

use std::{
    convert::Infallible,
    net::Ipv4Addr,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::Result;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use semel_bench::http::{BenchProcess, LoadConnection, end_with_parent};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
};

use crate::order;

/// How often an order was answered.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// A running upstream.
pub(crate) struct BenchUpstream {
    pub(crate) port: u16,
    pub(crate) process: BenchProcess,
    meter: LoadConnection,
}

impl BenchUpstream {
    pub(crate) async fn start(answer: usize) -> Result<Self> {
        let (process, port) = BenchProcess::start_self(&["upstream", &answer.to_string()])?;
        Ok(Self { port, process, meter: LoadConnection::open(port).await? })
    }

    /// How often it answered an order.
    pub(crate) async fn runs(&mut self) -> Result<u64> {
        Ok(self.meter.get("/meter").await?.parse()?)
    }
}

/// Serves on a free port, and prints the port.
pub(crate) fn serve(answer: usize) -> Result<()> {
    end_with_parent();
    let answer = Bytes::from(order::json(answer));
    // As many threads as there are processors.
    runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("{}", listener.local_addr()?.port());
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(connection(stream, answer.clone()));
        }
    })
}

async fn connection(stream: TcpStream, answer: Bytes) {
    let service = service_fn(|request| handle(request, answer.clone()));
    // An error ends this connection; the client reports it.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn handle(
    request: Request<Incoming>,
    answer: Bytes,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/meter" {
        let runs = RUNS.load(Ordering::Relaxed).to_string();
        return Ok(Response::new(Full::from(runs)));
    }
    // A request with an incomplete body gets no answer.
    let _ = request.into_body().collect().await;
    RUNS.fetch_add(1, Ordering::Relaxed);
    let mut response = Response::new(Full::from(answer));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}
