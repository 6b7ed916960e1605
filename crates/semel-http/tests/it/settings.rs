//! A setting that could not work is refused before the first request, and named.

use semel_http::{KeyFrom, RoutePolicy};

use crate::harness::{LayerBuilder, builder};

#[track_caller]
fn is_refused(layer: LayerBuilder, words: &[&str]) {
    let error = layer.build().expect_err("it could not work").to_string();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn a_namespace_must_be_one() {
    is_refused(builder().namespace(""), &["namespace", "empty"]);
    is_refused(builder().namespace("n".repeat(10_000)), &["namespace"]);
    is_refused(builder().namespace("pay\n"), &["namespace"]);
}

/// What is observed never answers anybody, so nobody may live where it is kept.
#[test]
fn a_namespace_is_not_that_of_what_is_observed() {
    is_refused(builder().namespace("pay:observed"), &["namespace", ":observed"]);
    assert!(builder().namespace("pay:observed:too").build().is_ok());
}

#[test]
fn a_route_is_given_once() {
    let api = RoutePolicy::api;
    let twice = builder().route("POST /a", api()).route("POST /a", api().require_key());
    is_refused(twice, &["POST /a", "twice"]);
    let both = builder().route("POST /a", api()).route("PUT /a", api());
    assert!(both.build().is_ok());
}

#[test]
fn a_route_is_a_method_and_a_template() {
    for bad in ["", "/a", "POST", "POST a", "post /a", "POST  /a", "POST /a b"] {
        let words = [&*format!("{bad:?}"), "POST /refunds/{id}"];
        is_refused(builder().route(bad, RoutePolicy::api()), &words);
    }
}

/// RFC 3253 has such methods.
#[test]
fn the_method_of_a_route_may_have_a_hyphen() {
    let built = builder().route("VERSION-CONTROL /docs/{id}", RoutePolicy::api()).build();
    assert!(built.is_ok(), "{}", built.unwrap_err());
}

#[test]
fn the_policy_of_a_route_is_checked_like_that_of_all() {
    let bad = || RoutePolicy::api().max_request_bytes(0);
    is_refused(builder().policy(bad()), &["max_request_bytes"]);
    is_refused(builder().route("POST /a", bad()), &["max_request_bytes"]);
}

/// Bodies that the policy promises to take or to keep would never fit.
#[test]
fn the_budget_holds_the_largest_body() {
    is_refused(builder().buffer_bytes(1 << 20), &["buffer_bytes", "1048576"]);
    let larger = || RoutePolicy::api().max_response_bytes(16 << 20);
    let layer = || builder().route("POST /a", larger());
    is_refused(layer().buffer_bytes(16 << 20), &["buffer_bytes"]);
    assert!(layer().buffer_bytes((16 << 20) + 4096).build().is_ok());
}

/// No request would ever have a key.
#[test]
fn a_pointer_to_the_key_is_a_pointer() {
    let policy = RoutePolicy::api().key_from(KeyFrom::json_pointer("request_id"));
    is_refused(builder().policy(policy), &["JSON pointer"]);
}
