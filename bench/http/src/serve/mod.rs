//! A server in a process of its own, so that its processor time can be measured alone.

mod axum_idempotent;
mod naive;
mod semel;

use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::Result;
use axum::{
    Router,
    body::Bytes,
    http::header::CONTENT_TYPE,
    response::IntoResponse,
    routing::{get, post},
    serve::ListenerExt,
};
use semel_bench::{http::end_with_parent, report::cpu};
use tokio::{net::TcpListener, runtime};

use crate::side::ServerSide;

/// How often the handler ran.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Serves on a free port, and prints the port.
pub(crate) fn run(side: ServerSide) -> Result<()> {
    end_with_parent();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        // The layer guards orders only; the meter has a route without it.
        let app = guarded(side, Router::new().route("/orders", post(order)))?;
        let app = app.route("/meter", get(meter));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("{}", listener.local_addr()?.port());
        let listener = listener.tap_io(|stream| {
            stream.set_nodelay(true).expect("a connected socket takes the option");
        });
        Ok(axum::serve(listener, app).await?)
    })
}

fn guarded(side: ServerSide, orders: Router) -> Result<Router> {
    match side {
        ServerSide::Bare => Ok(orders),
        ServerSide::Semel => semel::guarded(orders),
        ServerSide::Naive => Ok(naive::guarded(orders)),
        ServerSide::AxumIdempotent => Ok(axum_idempotent::guarded(orders)),
    }
}

/// The handler: it counts its runs and echoes the order.
async fn order(order: Bytes) -> impl IntoResponse {
    RUNS.fetch_add(1, Ordering::Relaxed);
    ([(CONTENT_TYPE, "application/json")], order)
}

/// Runs of the handler and nanoseconds of processor time, so far.
async fn meter() -> String {
    format!("{} {}", RUNS.load(Ordering::Relaxed), cpu().as_nanos())
}
