//! Modes change while the service runs. Records stay, and observed and enforced keys are kept apart.

use axum::{body::Body, http::Request};
use semel_http::{Mode, Modes, RoutePolicy};

use crate::{
    harness::{
        HandlerGate, RunCounter, answer, builder, charge, counting, gated, keyed_post, sent, text,
    },
    observe::ObservedCounts,
};

const ORDERS: &str = "POST /orders/{id}";

#[tokio::test]
async fn a_record_is_replayed_after_its_route_was_off_for_a_while() {
    let (runs, modes) = (RunCounter::default(), Modes::new());
    let service = counting(&runs).layer(builder().modes(modes.clone()).build().unwrap());
    assert_eq!(text(answer(&service, charge("a")).await).await, "run 1");
    modes.set(ORDERS, Mode::Off).unwrap();
    let off = answer(&service, charge("a")).await;
    assert!(!off.headers().contains_key("idempotency-key"));
    assert_eq!(text(off).await, "run 2");
    modes.clear(ORDERS);
    let replay = answer(&service, charge("a")).await;
    assert_eq!(replay.headers()["idempotent-replayed"], "true");
    assert_eq!(text(replay).await, "run 1");
}

#[tokio::test]
async fn observing_ignores_enforced_records() {
    let (counts, _guard) = ObservedCounts::listen();
    let (runs, modes) = (RunCounter::default(), Modes::new());
    let service = counting(&runs).layer(builder().modes(modes.clone()).build().unwrap());
    answer(&service, post_without_body("a")).await;
    modes.set_all(Mode::Observe);
    let observed = answer(&service, post_without_body("a")).await;
    assert!(!observed.headers().contains_key("idempotent-replayed"));
    assert_eq!(text(observed).await, "run 2");
    assert_eq!(counts.of(1).await, [("first".to_owned(), 1)].into());
}

#[tokio::test]
async fn enforcing_ignores_observed_records() {
    let (observed, _guard) = ObservedCounts::listen();
    let (runs, modes) = (RunCounter::default(), Modes::new());
    let service = counting(&runs).layer(builder().modes(modes.clone()).build().unwrap());
    modes.set_all(Mode::Observe);
    answer(&service, post_without_body("a")).await;
    assert_eq!(observed.of(1).await["first"], 1);
    modes.clear_all();
    let enforced = answer(&service, post_without_body("a")).await;
    assert!(!enforced.headers().contains_key("idempotent-replayed"));
    assert_eq!(text(enforced).await, "run 2");
}

/// A request without a body: it is observed whole even if the handler does not read it.
fn post_without_body(key: &str) -> Request<Body> {
    keyed_post("/orders/7", key, Body::empty())
}

#[tokio::test]
async fn switching_off_does_not_affect_requests_that_are_running() {
    let (gate, runs, modes) = (HandlerGate::closed(), RunCounter::default(), Modes::new());
    let layer = builder().modes(modes.clone()).build().unwrap();
    let service = gated(&gate, &runs, "receipt 7").layer(layer);
    let (first, second) = (sent(&service, charge("a")), sent(&service, charge("a")));
    modes.set_all(Mode::Off);
    gate.open();
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first.headers()["idempotency-key"], "a");
    assert_eq!(second.headers()["idempotent-replayed"], "true");
    modes.clear_all();
    let replay = answer(&service, charge("a")).await;
    assert_eq!(replay.headers()["idempotent-replayed"], "true");
    assert_eq!(runs.total(), 1);
}

#[tokio::test]
async fn set_all_applies_to_every_route_without_an_override() {
    let (runs, modes) = (RunCounter::default(), Modes::new());
    let layer = builder().route(ORDERS, RoutePolicy::api()).modes(modes.clone()).build().unwrap();
    let orders = counting(&runs);
    let service = orders.clone().nest("/other", orders).layer(layer);
    modes.set_all(Mode::Off);
    for run in ["run 1", "run 2"] {
        assert_eq!(text(answer(&service, charge("a")).await).await, run);
    }
    modes.set(ORDERS, Mode::Enforce).unwrap();
    for run in ["run 3", "run 3"] {
        assert_eq!(text(answer(&service, charge("a")).await).await, run);
    }
    for run in ["run 4", "run 5"] {
        let response = answer(&service, keyed_post("/other/orders/7", "a", "5 EUR")).await;
        assert_eq!(text(response).await, run);
    }
}

/// The first request started without protection, so it has no key.
#[tokio::test]
async fn switching_on_does_not_affect_requests_that_are_running() {
    let (gate, runs, modes) = (HandlerGate::closed(), RunCounter::default(), Modes::new());
    let layer = builder().modes(modes.clone()).build().unwrap();
    let service = gated(&gate, &runs, "receipt 7").layer(layer);
    modes.set_all(Mode::Off);
    let unprotected = sent(&service, charge("a"));
    modes.clear_all();
    let protected = sent(&service, charge("a"));
    gate.open();
    let unprotected = unprotected.await.unwrap();
    assert!(!unprotected.headers().contains_key("idempotency-key"));
    assert_eq!(text(unprotected).await, "receipt 7");
    assert_eq!(text(protected.await.unwrap()).await, "receipt 7");
    assert_eq!(runs.total(), 2);
}
