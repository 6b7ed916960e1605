//! The layer without a framework: a tower service behind hyper.
//!
//! `cargo run -p semel --features http --example tower`

mod client;

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Bytes, body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use semel::{
    Engine, MemoryStore,
    http::{Anonymous, IdempotencyLayer, RequestBody, RouteTemplate},
};
use tokio::net::TcpListener;
use tower::{Layer, service_fn};

static SENT: AtomicU64 = AtomicU64::new(0);

/// Sends an e-mail, once per key.
async fn send(
    request: Request<RequestBody<Incoming>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let number = SENT.fetch_add(1, SeqCst) + 1;
    let letter = request.into_body().collect().await.map(|body| body.to_bytes().len());
    let text = format!("e-mail {number}, {} bytes", letter.unwrap_or_default());
    Ok(Response::new(Full::from(text)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().store(MemoryStore::new()).build()?;
    // A closure provides route templates if there is no router.
    let template = RouteTemplate::closure(|parts| {
        parts.uri.path().starts_with("/mail/").then(|| "/mail/{to}".to_owned())
    });
    let layer =
        IdempotencyLayer::builder(engine).principal(Anonymous).route_template(template).build()?;
    let service = TowerToHyperService::new(layer.layer(service_fn(send)));

    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let server = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), service));
        }
    });

    let first = client::post(server, "/mail/bob", "letter-1", "hello").await?;
    let retry = client::post(server, "/mail/bob", "letter-1", "hello").await?;
    let to_another = client::post(server, "/mail/eve", "letter-1", "hello").await?;
    assert_eq!(first, retry);
    assert!(to_another.contains("fingerprint-mismatch"));
    assert_eq!(SENT.load(SeqCst), 1);
    Ok(())
}
