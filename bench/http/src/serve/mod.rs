//! A server, in a process of its own so that its processor time is its own.

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

use crate::side::Side;

/// Times the handler ran.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Serves on a free port, which it prints.
pub(crate) fn run(side: Side) -> Result<()> {
    end_with_parent();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        // The layer guards the orders only: the meter is asked beside them.
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

fn guarded(side: Side, orders: Router) -> Result<Router> {
    match side {
        Side::Bare => Ok(orders),
        Side::Semel => semel::guarded(orders),
        Side::Naive => Ok(naive::guarded(orders)),
        Side::AxumIdempotent => Ok(axum_idempotent::guarded(orders)),
    }
}

/// The effect: it is counted, and echoes the order.
async fn order(order: Bytes) -> impl IntoResponse {
    RUNS.fetch_add(1, Ordering::Relaxed);
    ([(CONTENT_TYPE, "application/json")], order)
}

/// Runs of the handler and nanoseconds of processor time, so far.
async fn meter() -> String {
    format!("{} {}", RUNS.load(Ordering::Relaxed), cpu().as_nanos())
}
