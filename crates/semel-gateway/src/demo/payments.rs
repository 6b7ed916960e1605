//! The demo's payments service, over HTTP.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::Result;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::json;
use tokio::{net::TcpListener, task::AbortHandle, time::sleep};

use super::bank::{Bank, ChargeRequest, ChargeResult};

/// The payments service while it runs.
pub(crate) struct Payments {
    pub(crate) address: SocketAddr,
    task: AbortHandle,
}

impl Payments {
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(serve(listener)).abort_handle();
        Ok(Self { address, task })
    }
}

impl Drop for Payments {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener) {
    let bank = Arc::new(Bank::default());
    // Ends with the demo: a listener on loopback has no other reason to fail.
    while let Ok((stream, _)) = listener.accept().await {
        let bank = bank.clone();
        let service = service_fn(move |request| handle(bank.clone(), request));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async { drop(connection.await) });
    }
}

async fn handle(
    bank: Arc<Bank>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match (request.method(), request.uri().path()) {
        (&Method::POST, "/charges") => charge(&bank, request.into_body()).await,
        (&Method::GET, "/charges") => respond(StatusCode::OK, &bank.charges()),
        _ => respond(StatusCode::NOT_FOUND, &json!({ "error": "there is POST and GET /charges" })),
    })
}

async fn charge(bank: &Bank, body: Incoming) -> Response<Full<Bytes>> {
    const MAX_BYTES: usize = 64 * 1024;
    let body = Limited::new(body, MAX_BYTES).collect().await.map(|body| body.to_bytes());
    let request = body.ok().and_then(|body| serde_json::from_slice::<ChargeRequest>(&body).ok());
    let Some(request) = request else {
        let error = json!({ "error": "send JSON such as {\"amount\": 500}" });
        return respond(StatusCode::UNPROCESSABLE_ENTITY, &error);
    };
    match bank.charge(&request) {
        ChargeResult::Unavailable => {
            respond(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": "the bank is closed" }))
        }
        ChargeResult::Charged(charge, takes) => {
            sleep(takes).await;
            respond(StatusCode::CREATED, &charge)
        }
    }
}

fn respond(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    let mut text = serde_json::to_string(body).expect("plain values are JSON");
    text.push('\n');
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
