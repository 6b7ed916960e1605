//! The target of a request: one host, one path, and no tunnel.

use super::{FramingStage, HIDDEN};
use crate::harness::TestRequest;

/// A POST of this target with these Host lines, and a body that would be a request.
fn post(target: &str, hosts: &str) -> String {
    let length = HIDDEN.len();
    format!("POST {target} HTTP/1.1\r\n{hosts}Content-Length: {length}\r\n\r\n{HIDDEN}")
}

async fn invalid(targets: &[&str], hosts: &str) {
    let stage = FramingStage::set().await;
    for target in targets {
        let response = stage.refuses(post(target, hosts), &[400]).await;
        response.assert_problem(400, "target-invalid");
    }
}

#[tokio::test]
async fn an_absolute_target_on_another_host_is_refused() {
    invalid(
        &[
            "http://evil.example/orders",
            "http://shop.example.evil.example/orders",
            "http://shop.example:81/orders",
            "http://shop.example@evil.example/orders",
            "http://user@shop.example/orders",
            "HTTP://evil.example/orders",
        ],
        "Host: shop.example\r\n",
    )
    .await;
}

#[tokio::test]
async fn an_absolute_target_of_another_scheme_is_refused() {
    let stage = FramingStage::set().await;
    for target in ["ftp://shop.example/orders", "file:///etc/passwd", "gopher://shop.example/"] {
        stage.refuses(post(target, "Host: shop.example\r\n"), &[400]).await;
    }
}

#[tokio::test]
async fn an_absolute_target_on_the_same_host_is_served() {
    let stage = FramingStage::set().await;
    let response = stage
        .gateway
        .request(TestRequest::post("http://shop.example/orders?a=b").body("5 EUR"))
        .await;
    assert_eq!(response.status, 200, "{response:?}");
    let received = stage.upstream.only();
    assert_eq!(received.target, "/orders?a=b");
    assert_eq!(received.all("host"), [stage.upstream.address.to_string()]);
}

/// Different spellings of a target are the same operation.
#[tokio::test]
async fn an_absolute_target_has_the_same_key_space() {
    let stage = FramingStage::set().await;
    stage.gateway.request(TestRequest::charge("a")).await.assert_ran("run 1");
    let absolute = TestRequest::post("http://shop.example/orders/7").key("a").body("5 EUR");
    stage.gateway.request(absolute).await.assert_replay("run 1");
}

#[tokio::test]
async fn two_hosts_are_refused() {
    invalid(&["/orders"], "Host: shop.example\r\nHost: evil.example\r\n").await;
    invalid(&["/orders"], "Host: shop.example\r\nHost: shop.example\r\n").await;
}

#[tokio::test]
async fn no_host_is_refused() {
    invalid(&["/orders"], "").await;
}

#[tokio::test]
async fn an_invalid_host_is_refused() {
    let stage = FramingStage::set().await;
    for host in [
        "user@shop.example",
        "user:word@shop.example",
        "shop.example/path",
        "shop.example, evil.example",
        "shop example",
        "shop.example#x",
        "http://shop.example",
        "[::1",
    ] {
        stage.refuses(post("/orders", &format!("Host: {host}\r\n")), &[400]).await;
    }
}

#[tokio::test]
async fn a_host_with_an_invalid_port_is_refused() {
    let stage = FramingStage::set().await;
    for host in ["shop.example:port", "shop.example:99999", "shop.example:-1"] {
        stage.refuses(post("/orders", &format!("Host: {host}\r\n")), &[400]).await;
    }
}

#[tokio::test]
async fn a_host_with_a_port_or_an_address_is_served() {
    let stage = FramingStage::set().await;
    for host in ["shop.example:8080", "127.0.0.1:8080", "[::1]:8080", "localhost"] {
        let response = stage.gateway.request(TestRequest::get("/orders").host(host)).await;
        assert_eq!(response.status, 200, "{host}");
    }
}

#[tokio::test]
async fn dot_segments_are_refused() {
    invalid(
        &[
            "/../orders",
            "/orders/../admin",
            "/orders/./7",
            "/orders/..",
            "/orders/%2e%2e/admin",
            "/orders/%2E./admin",
            "/orders/.%2e/admin",
            "http://shop.example/../admin",
        ],
        "Host: shop.example\r\n",
    )
    .await;
}

#[tokio::test]
async fn dots_that_are_no_segment_are_served_as_they_are() {
    let stage = FramingStage::set().await;
    let targets = ["/a/...", "/a..b", "/.well-known/x", "/a?b=../c", "/a%2Fb//c;d"];
    for target in targets {
        assert_eq!(stage.gateway.request(TestRequest::get(target)).await.status, 200, "{target}");
    }
    let received: Vec<_> =
        stage.upstream.received().into_iter().map(|received| received.target).collect();
    assert_eq!(received, targets);
}

#[tokio::test]
async fn a_tunnel_is_refused() {
    let stage = FramingStage::set().await;
    for target in ["evil.example:443", "shop.example:80", "127.0.0.1:22"] {
        let bytes = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n{HIDDEN}");
        let response = stage.refuses(bytes, &[405]).await;
        response.assert_problem(405, "method-not-allowed");
    }
}

#[tokio::test]
async fn a_trace_is_refused() {
    let stage = FramingStage::set().await;
    let bytes = format!("TRACE /orders HTTP/1.1\r\nHost: shop.example\r\n\r\n{HIDDEN}");
    stage.refuses(bytes, &[405]).await.assert_problem(405, "method-not-allowed");
}

#[tokio::test]
async fn a_target_that_is_no_path_is_refused() {
    let stage = FramingStage::set().await;
    for target in ["orders", "shop.example:80", "*", "//", "?a=b", "#x", "\\orders"] {
        // A path may begin with two slashes.
        let statuses: &[u16] = if target == "//" { &[200, 400] } else { &[400] };
        let mut connection = stage.gateway.connection().await;
        connection.write(post(target, "Host: shop.example\r\n")).await;
        let response = connection.read_response().await.unwrap();
        assert!(statuses.contains(&response.status), "{target}: {response:?}");
        stage.assert_no_second(target).await;
    }
}

/// The upstream decides what the asterisk means; it must not be taken for another path.
#[tokio::test]
async fn options_of_everything_is_one_request_or_none() {
    let stage = FramingStage::set().await;
    let mut connection = stage.gateway.connection().await;
    connection.write("OPTIONS * HTTP/1.1\r\nHost: shop.example\r\n\r\n").await;
    let response = connection.read_response().await.unwrap();
    assert!([200, 204, 400, 404, 405].contains(&response.status), "{response:?}");
    let received = stage.upstream.received();
    assert!(
        received.iter().all(|received| received.method == "OPTIONS" && received.target == "*"),
        "{received:?}"
    );
    assert!(received.len() <= 1);
}
