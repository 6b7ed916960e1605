//! A payments service on axum: one layer, and a retried charge takes effect once.
//!
//! `cargo run -p semel --features axum --example payments` shows it; with an address, such as
//! `-- 127.0.0.1:3000`, it serves until it is stopped.

mod client;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use semel::{
    Engine, MemoryStore,
    http::{Authorization, Idempotency, IdempotencyLayer, RoutePolicy},
};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct ChargeOrder {
    cents: u64,
}

#[derive(Serialize)]
struct ChargeReceipt {
    number: u64,
    cents: u64,
    bank_key: String,
}

type Charges = Arc<AtomicU64>;

async fn charge(
    State(charges): State<Charges>,
    idempotency: Idempotency,
    Json(order): Json<ChargeOrder>,
) -> (StatusCode, Json<ChargeReceipt>) {
    let number = charges.fetch_add(1, SeqCst) + 1;
    // The Idempotency-Key for the bank: the same on every attempt.
    let bank_key = idempotency.downstream_key().to_string();
    (StatusCode::CREATED, Json(ChargeReceipt { number, cents: order.cents, bank_key }))
}

fn service(charges: Charges) -> Result<Router, semel::Error> {
    let engine = Engine::builder().store(MemoryStore::new()).build()?;
    let layer = IdempotencyLayer::builder(engine)
        .namespace("payments")
        .principal(Authorization)
        .route("POST /charges", RoutePolicy::financial().require_key())
        .build()?;
    Ok(Router::new().route("/charges", post(charge)).layer(layer).with_state(charges))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let charges = Charges::default();
    let service = service(charges.clone())?;
    if let Some(address) = std::env::args().nth(1) {
        return Ok(axum::serve(TcpListener::bind(address).await?, service).await?);
    }
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let server = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, service).await });

    let first = client::post(server, "/charges", "order-42", r#"{"cents":500}"#).await?;
    let retry = client::post(server, "/charges", "order-42", r#"{"cents":500}"#).await?;
    let other = client::post(server, "/charges", "order-42", r#"{"cents":900}"#).await?;
    assert_eq!(first, retry);
    assert!(other.contains("fingerprint-mismatch"));
    assert_eq!(charges.load(SeqCst), 1);
    Ok(())
}
