//! HTTP/2 with prior knowledge, client and server.

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, Response, StatusCode, Version},
    routing::post,
};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, Collected, StreamBody};
use hyper::{
    body::Incoming,
    client::conn::http2::{self as client, SendRequest},
    server::conn::http2 as server,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};

use crate::harness::{RunCounter, builder, charge, counting, infallible, keyed_post};

/// One connection to the service.
async fn connected(service: Router) -> SendRequest<Body> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let serving = server::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(far), TowerToHyperService::new(service));
    tokio::spawn(async move { drop(serving.await) });
    let (sender, connection) =
        client::handshake(TokioExecutor::new(), TokioIo::new(near)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    sender
}

async fn answer(
    connection: &mut SendRequest<Body>,
    mut request: Request<Body>,
) -> (Response<()>, Collected<Bytes>) {
    *request.uri_mut() = format!("http://localhost{}", request.uri()).parse().unwrap();
    *request.version_mut() = Version::HTTP_2;
    let answer: Response<Incoming> = connection.send_request(request).await.unwrap();
    assert_eq!(answer.version(), Version::HTTP_2);
    let (head, body) = answer.into_parts();
    (Response::from_parts(head, ()), body.collect().await.unwrap())
}

#[tokio::test]
async fn a_retry_on_the_same_connection_is_replayed() {
    let runs = RunCounter::default();
    let mut connection = connected(counting(&runs).layer(builder().build().unwrap())).await;
    let (first, response) = answer(&mut connection, charge("a")).await;
    assert!(!first.headers().contains_key("idempotent-replayed"));
    let (replay, again) = answer(&mut connection, charge("a")).await;
    assert_eq!(replay.headers()["idempotent-replayed"], "true");
    assert_eq!((response.to_bytes(), again.to_bytes()), ("run 1".into(), "run 1".into()));
}

/// The body is endless, and the layer does not read it.
#[tokio::test]
async fn an_early_refusal_ends_its_stream_and_not_its_connection() {
    let runs = RunCounter::default();
    let mut connection = connected(counting(&runs).layer(builder().build().unwrap())).await;
    let endless = Body::from_stream(stream::repeat_with(|| {
        infallible(Bytes::from_static(&[b'x'; 16 * 1024]))
    }));
    let (refused, _) = answer(&mut connection, keyed_post("/orders/7", "a, b", endless)).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(refused.headers()["semel-status"], "key-invalid");
    assert!(!refused.headers().contains_key("connection"));
    let (next, response) = answer(&mut connection, charge("a")).await;
    assert_eq!((next.status(), response.to_bytes()), (StatusCode::OK, "run 1".into()));
}

#[tokio::test]
async fn trailers_are_passed_on_and_replayed() {
    let runs = RunCounter::default();
    let counted = runs.clone();
    let handler = move |request: Request<Body>| async move {
        counted.count();
        let received = request.into_body().collect().await.unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-received", received.trailers().unwrap()["x-sum"].clone());
        let frames =
            [infallible(Frame::data(Bytes::from_static(b"said"))), Ok(Frame::trailers(trailers))];
        Body::new(StreamBody::new(stream::iter(frames)))
    };
    let service = Router::new().route("/", post(handler)).layer(builder().build().unwrap());
    let mut connection = connected(service).await;
    for _ in 0..2 {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "7".parse().unwrap());
        let frames =
            [infallible(Frame::data(Bytes::from_static(b"5 EUR"))), Ok(Frame::trailers(trailers))];
        let body = Body::new(StreamBody::new(stream::iter(frames)));
        let (_, response) = answer(&mut connection, keyed_post("/", "a", body)).await;
        assert_eq!(response.trailers().unwrap()["x-received"], "7");
        assert_eq!(response.to_bytes(), "said");
    }
    assert_eq!(runs.total(), 1);
}
