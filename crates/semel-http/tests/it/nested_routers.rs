//! axum strips the prefix of a nested router from the path. The layer uses the path that the client sent.

use std::time::Duration;

use axum::{Router, extract::Path, http::Request, response::IntoResponse, routing::post};
use semel_http::{IdempotencyLayer, RequestBody, RoutePolicy, RouteTemplate};
use tower::Layer;

use crate::harness::{RunCounter, answer, builder, counting, infallible, keyed_post, text};

#[tokio::test]
async fn a_parameter_in_the_prefix_of_a_nested_router_is_part_of_the_request() {
    let orders = Router::new()
        .route("/orders", post(|Path(tenant): Path<String>| async move { tenant }))
        .layer(builder().build().unwrap());
    let service = Router::new().nest("/tenants/{tenant}", orders);
    let one = answer(&service, keyed_post("/tenants/1/orders", "a", "5 EUR")).await;
    let two = answer(&service, keyed_post("/tenants/2/orders", "a", "5 EUR")).await;
    assert_eq!(text(one).await, "1");
    // A mismatch or a second run are both right. The answer for tenant 1 is not.
    assert_ne!(text(two).await, "1");
}

#[tokio::test]
async fn the_prefix_of_a_nested_router_is_part_of_the_concrete_path() {
    let layer = builder().route_template(RouteTemplate::concrete_path()).build().unwrap();
    let orders = |name: &'static str| {
        Router::new().route("/orders", post(move || async move { name })).layer(layer.clone())
    };
    let service = Router::new().nest("/live", orders("live")).nest("/test", orders("test"));
    assert_separate(&service).await;
}

/// axum has no template for a nested service.
#[tokio::test]
async fn the_prefix_of_a_nested_service_is_part_of_the_concrete_path() {
    let layer: IdempotencyLayer = builder().build().unwrap();
    let orders = |name: &'static str| {
        layer.layer(tower::service_fn(
            move |_: Request<RequestBody<axum::body::Body>>| async move {
                infallible(name.into_response())
            },
        ))
    };
    let service =
        Router::new().nest_service("/live", orders("live")).nest_service("/test", orders("test"));
    assert_separate(&service).await;
}

async fn assert_separate(service: &Router) {
    let one = answer(service, keyed_post("/test/orders", "a", "5 EUR")).await;
    let two = answer(service, keyed_post("/live/orders", "a", "5 EUR")).await;
    assert_eq!((text(one).await, text(two).await), ("test".into(), "live".into()));
}

/// A claim by the inner layer would wait for the outer layer, which waits for the inner one.
#[tokio::test]
async fn a_layer_inside_a_layer_does_not_wait_for_itself() {
    let runs = RunCounter::default();
    let layer = builder().policy(RoutePolicy::api().wait(Duration::ZERO)).build().unwrap();
    let inner = counting(&runs).layer(layer.clone());
    let service = inner.clone().nest("/v1", inner).layer(layer);
    for (uri, run) in [("/orders/7", "run 1"), ("/v1/orders/7", "run 2")] {
        for _ in 0..2 {
            assert_eq!(
                text(answer(&service, keyed_post(uri, "a", "5 EUR")).await).await,
                run,
                "{uri}"
            );
        }
    }
}
