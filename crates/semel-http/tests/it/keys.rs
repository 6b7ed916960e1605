//! Where the key of a request comes from, and which principal it belongs to.

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use semel_http::{Authorization, IdempotencyLayer, KeyFrom, RoutePolicy, TrustedHeader};

use crate::harness::{RunCounter, answer, builder, charge, counting, engine, problem, text};

/// A request without the key header.
fn keyless(body: impl Into<Body>) -> Request<Body> {
    Request::post("/orders/7").body(body.into()).unwrap()
}

/// A service whose route has this `key_from`.
fn service_with(key_from: KeyFrom, runs: &RunCounter) -> Router {
    let policy = RoutePolicy::api().key_from(key_from);
    counting(runs).layer(builder().policy(policy).build().unwrap())
}

#[tokio::test]
async fn a_key_has_up_to_255_characters() {
    let runs = RunCounter::default();
    let service = counting(&runs).layer(builder().build().unwrap());
    let longest = "k".repeat(255);
    for _ in 0..2 {
        let response = answer(&service, charge(&longest)).await;
        assert_eq!(response.headers()["idempotency-key"], longest);
        assert_eq!(text(response).await, "run 1");
    }
    let response = answer(&service, charge(&"k".repeat(256))).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(problem(&response), Some("key-invalid"));
    assert_eq!(runs.total(), 1);
}

/// Each caller gets the key back as it sent it.
#[tokio::test]
async fn a_quoted_key_is_the_raw_one() {
    let runs = RunCounter::default();
    let service = counting(&runs).layer(builder().build().unwrap());
    for spelling in ["order-7", "\"order-7\"", "\"order-7\";v=1"] {
        let response = answer(&service, charge(spelling)).await;
        assert_eq!(response.headers()["idempotency-key"], spelling);
        assert_eq!(text(response).await, "run 1", "{spelling}");
    }
    assert_eq!(text(answer(&service, charge("order-7;v=1")).await).await, "run 2");
}

/// The client meant to send a key, so the request must not run unprotected.
#[tokio::test]
async fn an_id_of_the_wrong_type_is_refused() {
    let runs = RunCounter::default();
    let service = service_with(KeyFrom::json_pointer("/request_id"), &runs);
    for body in [r#"{"request_id":""}"#, r#"{"request_id":1.5}"#, r#"{"request_id":["a"]}"#] {
        let response = answer(&service, keyless(body)).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{body}");
    }
    assert_eq!(runs.total(), 0);
}

#[tokio::test]
async fn a_principal_that_is_too_long_is_not_reported_as_a_bad_key() {
    let runs = RunCounter::default();
    let layer = IdempotencyLayer::builder(engine()).principal(Authorization).build().unwrap();
    let service = counting(&runs).layer(layer);
    let mut request = charge("a");
    request.headers_mut().insert("authorization", "t".repeat(9000).parse().unwrap());
    let response = answer(&service, request).await;
    assert_ne!(problem(&response), Some("key-invalid"));
}

#[tokio::test]
async fn an_id_that_cannot_be_read_is_refused() {
    let runs = RunCounter::default();
    let service = service_with(KeyFrom::json_pointer("/request_id"), &runs);
    for body in [r#"{"request_id":"\ud800"}"#, r#"{"request_id":1e999}"#] {
        let response = answer(&service, keyless(body)).await;
        assert_eq!(problem(&response), Some("key-invalid"), "{body}");
    }
    assert_eq!(runs.total(), 0);
}

/// A handler may ignore the other fields, so the layer must not skip the key because of them.
#[tokio::test]
async fn an_id_in_the_body_is_found_or_refused_whatever_the_other_fields_are() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for other in ["1e999", r#""\ud800""#, &deep] {
        let runs = RunCounter::default();
        let service = service_with(KeyFrom::json_pointer("/request_id"), &runs);
        for _ in 0..2 {
            let body = format!(r#"{{"request_id":"r-7","other":{other}}}"#);
            let response = answer(&service, keyless(body)).await;
            // Found or refused: both are right.
            match problem(&response) {
                Some(name) => assert_eq!(name, "key-invalid"),
                None => assert_eq!(text(response).await, "run 1", "{other:.20}"),
            }
        }
    }
}

#[tokio::test]
async fn a_required_key_that_is_in_neither_header_nor_body_is_missing() {
    let runs = RunCounter::default();
    let policy = RoutePolicy::api().require_key().key_from(KeyFrom::json_pointer("/request_id"));
    let service = counting(&runs).layer(builder().policy(policy).build().unwrap());
    let response = answer(&service, keyless(r#"{"amount":5}"#)).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(problem(&response), Some("key-missing"));
    assert_eq!(runs.total(), 0);
    let response = answer(&service, keyless(r#"{"request_id":"r-7"}"#)).await;
    assert_eq!(text(response).await, "run 1");
}

#[tokio::test]
async fn a_closure_finds_the_key_in_head_and_body() {
    let runs = RunCounter::default();
    let find = KeyFrom::closure(|parts, body| {
        let tenant = parts.headers.get("x-tenant")?.to_str().ok()?;
        Some(format!("{tenant}-{}", body.len()))
    });
    let service = service_with(find, &runs);
    let request_of = |tenant: &str, body: &'static str| {
        let mut request = keyless(body);
        request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
        request
    };
    for (request, run) in [
        (request_of("1", "5 EUR"), "run 1"),
        (request_of("1", "5 EUR"), "run 1"),
        (request_of("2", "5 EUR"), "run 2"),
        (request_of("1", "50 EUR"), "run 3"),
        // Without a tenant there is no key, and nothing is recorded.
        (keyless("5 EUR"), "run 4"),
        (keyless("5 EUR"), "run 5"),
    ] {
        assert_eq!(text(answer(&service, request).await).await, run);
    }
}

#[tokio::test]
async fn a_trusted_header_separates_callers_and_two_values_are_no_principal() {
    let runs = RunCounter::default();
    let user = TrustedHeader::new("x-user").unwrap();
    let service =
        counting(&runs).layer(IdempotencyLayer::builder(engine()).principal(user).build().unwrap());
    let request_of = |users: &[&str]| {
        let mut request = charge("a");
        for user in users {
            request.headers_mut().append("x-user", user.parse().unwrap());
        }
        request
    };
    for (user, run) in [("ann", "run 1"), ("bob", "run 2"), ("ann", "run 1")] {
        assert_eq!(text(answer(&service, request_of(&[user])).await).await, run);
    }
    for users in [&[][..], &["ann", "bob"], &["ann", "ann"], &[""]] {
        let response = answer(&service, request_of(users)).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(problem(&response), Some("principal-missing"));
    }
    assert_eq!(runs.total(), 2);
}
