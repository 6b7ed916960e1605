//! A setting that cannot work is refused before the first request, with its name in the error.

use semel_http::{KeyFrom, RoutePolicy};

use crate::harness::{LayerBuilder, builder};

#[track_caller]
fn assert_refused(layer: LayerBuilder, words: &[&str]) {
    let error = layer.build().expect_err("the setting cannot work").to_string();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn a_namespace_must_be_valid() {
    assert_refused(builder().namespace(""), &["namespace", "empty"]);
    assert_refused(builder().namespace("n".repeat(10_000)), &["namespace"]);
    assert_refused(builder().namespace("pay\n"), &["namespace"]);
}

/// Observed records must never be replayed.
#[test]
fn a_namespace_must_not_be_that_of_observed_keys() {
    assert_refused(builder().namespace("pay:observed"), &["namespace", ":observed"]);
    assert!(builder().namespace("pay:observed:too").build().is_ok());
}

#[test]
fn a_route_must_not_be_given_twice() {
    let api = RoutePolicy::api;
    let twice = builder().route("POST /a", api()).route("POST /a", api().require_key());
    assert_refused(twice, &["POST /a", "twice"]);
    let both = builder().route("POST /a", api()).route("PUT /a", api());
    assert!(both.build().is_ok());
}

#[test]
fn a_route_must_be_a_method_and_a_template() {
    for bad in ["", "/a", "POST", "POST a", "post /a", "POST  /a", "POST /a b"] {
        let words = [&*format!("{bad:?}"), "POST /refunds/{id}"];
        assert_refused(builder().route(bad, RoutePolicy::api()), &words);
    }
}

/// RFC 3253 has such methods.
#[test]
fn the_method_of_a_route_may_have_a_hyphen() {
    let built = builder().route("VERSION-CONTROL /docs/{id}", RoutePolicy::api()).build();
    assert!(built.is_ok(), "{}", built.unwrap_err());
}

#[test]
fn the_policy_of_a_route_is_checked_like_the_default_policy() {
    let bad = || RoutePolicy::api().max_request_bytes(0);
    assert_refused(builder().policy(bad()), &["max_request_bytes"]);
    assert_refused(builder().route("POST /a", bad()), &["max_request_bytes"]);
}

/// A smaller budget could never hold a body that the policy allows.
#[test]
fn the_budget_must_hold_the_largest_body() {
    assert_refused(builder().buffer_bytes(1 << 20), &["buffer_bytes", "1048576"]);
    let larger = || RoutePolicy::api().max_response_bytes(16 << 20);
    let layer = || builder().route("POST /a", larger());
    assert_refused(layer().buffer_bytes(16 << 20), &["buffer_bytes"]);
    assert!(layer().buffer_bytes((16 << 20) + 4096).build().is_ok());
}

/// With an invalid pointer, no request would ever have a key.
#[test]
fn a_pointer_to_the_key_must_be_valid() {
    let policy = RoutePolicy::api().key_from(KeyFrom::json_pointer("request_id"));
    assert_refused(builder().policy(policy), &["JSON pointer"]);
}
