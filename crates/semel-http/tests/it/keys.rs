//! Which key a request has, and whose it is.

use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use semel_http::{Authorization, IdempotencyLayer, KeyFrom, RoutePolicy};

use crate::scene::{Runs, answer, builder, charge, counting, engine, problem, text};

#[tokio::test]
async fn a_key_has_up_to_255_characters() {
    let runs = Runs::default();
    let service = counting(&runs).layer(builder().build().unwrap());
    let longest = "k".repeat(255);
    for _ in 0..2 {
        let said = answer(&service, charge(&longest)).await;
        assert_eq!(said.headers()["idempotency-key"], longest);
        assert_eq!(text(said).await, "run 1");
    }
    let said = answer(&service, charge(&"k".repeat(256))).await;
    assert_eq!(said.status(), StatusCode::BAD_REQUEST);
    assert_eq!(problem(&said), Some("key-invalid"));
    assert_eq!(runs.so_far(), 1);
}

/// Each caller sees its own spelling again.
#[tokio::test]
async fn a_quoted_key_is_the_raw_one() {
    let runs = Runs::default();
    let service = counting(&runs).layer(builder().build().unwrap());
    for spelling in ["order-7", "\"order-7\"", "\"order-7\";v=1"] {
        let said = answer(&service, charge(spelling)).await;
        assert_eq!(said.headers()["idempotency-key"], spelling);
        assert_eq!(text(said).await, "run 1", "{spelling}");
    }
    assert_eq!(text(answer(&service, charge("order-7;v=1")).await).await, "run 2");
}

/// The client meant to send one: it must not run unprotected.
#[tokio::test]
async fn an_id_that_is_there_but_unusable_is_not_taken_for_none() {
    let runs = Runs::default();
    let policy = RoutePolicy::api().key_from(KeyFrom::json_pointer("/request_id"));
    let service = counting(&runs).layer(builder().policy(policy).build().unwrap());
    for body in [r#"{"request_id":""}"#, r#"{"request_id":1.5}"#, r#"{"request_id":["a"]}"#] {
        let request = Request::post("/orders/7").body(Body::from(body)).unwrap();
        let said = answer(&service, request).await;
        assert_eq!(said.status(), StatusCode::BAD_REQUEST, "{body}");
    }
    assert_eq!(runs.so_far(), 0);
}

#[tokio::test]
async fn a_principal_that_is_too_long_is_not_called_a_bad_key() {
    let runs = Runs::default();
    let layer = IdempotencyLayer::builder(engine()).principal(Authorization).build().unwrap();
    let service = counting(&runs).layer(layer);
    let mut request = charge("a");
    request.headers_mut().insert("authorization", "t".repeat(9000).parse().unwrap());
    let said = answer(&service, request).await;
    assert_ne!(problem(&said), Some("key-invalid"));
}
