//! The admin listener, for the operators of the gateway.

use std::{fs, net::SocketAddr, path::Path};

use crate::harness::{
    GatewayProcess, ScriptedReply, Setup, TestRequest, TestUpstream, request_to, until,
};

const TOKEN: &str = "an-admin-token-0123456789abcdef";

async fn stage(upstream: &TestUpstream) -> (GatewayProcess, SocketAddr) {
    let setup = Setup::to(upstream).flag("--admin", "127.0.0.1:0").flag("--admin-token", TOKEN);
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    (gateway, admin)
}

fn with_token(path: &str) -> TestRequest {
    TestRequest::get(path).header("Authorization", &format!("Bearer {TOKEN}"))
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let upstream = TestUpstream::counting().await;
    let (gateway, admin) = stage(&upstream).await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    gateway.request(TestRequest::charge("k")).await.assert_replay("run 1");
    gateway
        .request(TestRequest::charge("k").body("6 EUR"))
        .await
        .assert_problem(409, "fingerprint-mismatch");
    let metrics = request_to(admin, with_token("/metrics")).await;
    assert_eq!(metrics.status, 200);
    let text = metrics.text();
    for name in [
        "idempotency_cache_miss_total",
        "idempotency_cache_hit_total",
        "idempotency_key_collision_total",
        "idempotency_http_problems_total",
    ] {
        let counted = text.lines().any(|line| line.starts_with(name) && line.ends_with(" 1"));
        assert!(counted, "{name}: {text}");
    }
    assert!(text.contains("idempotency_store_latency_ms_bucket"), "{text}");
}

#[tokio::test]
async fn the_first_scrape_shows_what_is_alerted_on() {
    let upstream = TestUpstream::counting().await;
    let (_gateway, admin) = stage(&upstream).await;
    let text = request_to(admin, with_token("/metrics")).await.text();
    for line in [
        "idempotency_outcome_unstored_total 0",
        "idempotency_records 0",
        "semel_gateway_requests_total{status=\"5xx\"} 0",
        "semel_gateway_upstream_errors_total{upstream=\"default\",kind=\"failed\"} 0",
        "semel_gateway_request_seconds_bucket{le=\"0.0005\"} 0",
        "semel_gateway_connections 0",
        concat!("semel_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line} in {text}");
    }
}

#[tokio::test]
async fn metrics_need_the_token() {
    let upstream = TestUpstream::counting().await;
    let (_gateway, admin) = stage(&upstream).await;
    assert_eq!(request_to(admin, TestRequest::get("/metrics")).await.status, 401);
    for wrong in ["Bearer wrong", "Bearer ", TOKEN, "Basic dXNlcjp3b3Jk"] {
        let response =
            request_to(admin, TestRequest::get("/metrics").header("Authorization", wrong)).await;
        assert_eq!(response.status, 401, "{wrong}");
        assert!(!response.text().contains("idempotency_"));
    }
}

#[tokio::test]
async fn health_and_readiness_need_no_token() {
    let upstream = TestUpstream::counting().await;
    let (_gateway, admin) = stage(&upstream).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(request_to(admin, TestRequest::get(path)).await.status, 200, "{path}");
    }
    assert_eq!(request_to(admin, with_token("/nothing-here")).await.status, 404);
}

#[tokio::test]
async fn a_gateway_that_drains_is_alive_and_not_ready() {
    let upstream = TestUpstream::gated().await;
    let (mut gateway, admin) = stage(&upstream).await;
    let mut connection = gateway.send(TestRequest::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigterm();
    until("it is not ready", async || {
        request_to(admin, TestRequest::get("/readyz")).await.status == 503
    })
    .await;
    assert_eq!(request_to(admin, TestRequest::get("/healthz")).await.status, 200);
    upstream.open_gate();
    connection.read_response().await.unwrap().assert_ran("run 1");
    assert_eq!(gateway.wait_exit(crate::harness::PATIENCE).await, Some(0));
}

/// On the gateway's address, these paths belong to the upstream.
#[tokio::test]
async fn the_gateway_itself_has_no_admin_pages() {
    let upstream = TestUpstream::counting().await;
    let (gateway, _admin) = stage(&upstream).await;
    for (number, path) in ["/metrics", "/healthz", "/readyz"].into_iter().enumerate() {
        let response = gateway.request(with_token(path)).await;
        response.assert_ran(&format!("run {}", number + 1));
    }
}

/// They appear in no log, at any level, and in no metric.
#[tokio::test]
async fn keys_bodies_and_credentials_are_not_logged() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream)
        .flag("--principal", "authorization")
        .flag("--admin", "127.0.0.1:0")
        .flag("--admin-token", TOKEN)
        .flag("--log", "trace");
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    let charge = |body: &str| {
        TestRequest::post("/orders/7")
            .key("key-in-the-clear")
            .header("Authorization", "Bearer credential-in-the-clear")
            .body(body)
    };
    for body in ["body-in-the-clear", "body-in-the-clear", "other-in-the-clear"] {
        gateway.request(charge(body)).await;
    }
    let metrics = request_to(admin, with_token("/metrics")).await.text();
    let logs = gateway.stderr();
    assert!(!metrics.contains("in-the-clear"), "{metrics}");
    assert!(!logs.contains("in-the-clear"), "{logs}");
    assert!(!logs.contains(TOKEN), "{logs}");
}

#[tokio::test]
async fn logs_are_json_where_that_is_asked_for() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).flag("--log-format", "json").start().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    gateway.request(TestRequest::charge("k")).await.assert_replay("run 1");
    until("the replay is logged", async || gateway.stderr().contains("returned from cache")).await;
    for line in gateway.stderr().lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(line.is_object());
    }
}

#[tokio::test]
async fn a_store_that_fails_is_logged_and_not_ready() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).embedded().flag("--wait", "0s").flag("--admin", "127.0.0.1:0");
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    remove(&setup.folder().join("data"));
    gateway.request(TestRequest::charge("k")).await.assert_problem(503, "store-unavailable");
    assert_eq!(request_to(admin, TestRequest::get("/readyz")).await.status, 503);
    until("it is logged", async || gateway.stderr().contains("the store failed")).await;
}

/// `semel_gateway_requests_total` is a "counter of answers".
#[tokio::test]
async fn responses_to_unreadable_requests_are_counted() {
    let upstream = TestUpstream::counting().await;
    let mut gateway = Setup::to(&upstream).flag("--admin", "127.0.0.1:0").start().await;
    let admin = gateway.admin().await;
    let mut connection = gateway.connection().await;
    connection
        .write("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
        .await;
    assert_eq!(connection.read_response().await.unwrap().status, 400);
    // Counted once the connection has ended.
    let counted = "semel_gateway_requests_total{status=\"4xx\"} 1\n";
    let is_counted =
        async || request_to(admin, TestRequest::get("/metrics")).await.text().contains(counted);
    until("the response is counted", is_counted).await;
}

#[tokio::test]
async fn an_upstream_response_does_not_change_the_store_health() {
    let upstream = TestUpstream::start(|_| {
        ScriptedReply::with(503, "Semel-Status: store-unavailable\r\n", "")
    })
    .await;
    let mut gateway = Setup::to(&upstream).flag("--admin", "127.0.0.1:0").start().await;
    let admin = gateway.admin().await;
    assert_eq!(request_to(admin, TestRequest::get("/readyz")).await.status, 200);
    gateway.request(TestRequest::get("/anything")).await;
    assert_eq!(request_to(admin, TestRequest::get("/readyz")).await.status, 200);
}

/// Removes a store's folder. The store may create its next segment meanwhile, so the removal is repeated.
fn remove(folder: &Path) {
    while folder.exists() {
        let _ = fs::remove_dir_all(folder);
    }
}

/// A removed file can still be written and synced, but a restart does not find it.
#[tokio::test]
async fn a_new_key_is_refused_once_the_folder_is_gone() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).embedded().flag("--wait", "0s").flag("--admin", "127.0.0.1:0");
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    remove(&setup.folder().join("data"));
    gateway.request(TestRequest::charge("new")).await.assert_problem(503, "store-unavailable");
    gateway.request(TestRequest::charge("k")).await.assert_problem(503, "store-unavailable");
    assert_eq!(upstream.count(), 1);
    assert_eq!(request_to(admin, TestRequest::get("/readyz")).await.status, 503);
    let named = "data was removed or replaced while it was in use";
    until("the folder is named", async || gateway.stderr().contains(named)).await;
}
