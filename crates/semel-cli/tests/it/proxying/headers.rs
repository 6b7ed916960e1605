//! End-to-end headers are forwarded, hop-by-hop headers are removed, and the gateway's own headers cannot be faked.

use crate::harness::{ScriptedReply, Setup, TestRequest, TestUpstream};

#[tokio::test]
async fn end_to_end_headers_arrive() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    for request in [
        TestRequest::get("/orders?a=b&c"),
        TestRequest::post("/orders?a=b&c"),
        TestRequest::charge("k"),
    ] {
        let request = request
            .header("Authorization", "Bearer t")
            .header("Accept", "text/plain")
            .header("Cookie", "a=b; c=d")
            .header("X-Two", "1")
            .header("X-Two", "2")
            .header("X-Empty", "")
            .header("Content-Type", "text/plain")
            .header("User-Agent", "test/1");
        assert_eq!(gateway.request(request).await.status, 200);
    }
    for received in upstream.received() {
        for (name, value) in [
            ("authorization", "Bearer t"),
            ("accept", "text/plain"),
            ("cookie", "a=b; c=d"),
            ("x-empty", ""),
            ("content-type", "text/plain"),
            ("user-agent", "test/1"),
        ] {
            assert_eq!(received.all(name), [value], "{received:?}");
        }
        assert_eq!(received.all("x-two"), ["1", "2"]);
    }
    assert_eq!(upstream.received()[0].target, "/orders?a=b&c");
}

#[tokio::test]
async fn hop_by_hop_headers_of_a_request_stay_behind() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    for request in
        [TestRequest::get("/orders"), TestRequest::post("/orders"), TestRequest::charge("k")]
    {
        let request = request
            .header("Connection", "keep-alive, X-Named")
            .header("Connection", "x-also-NAMED")
            .header("X-Named", "secret")
            .header("X-Also-Named", "secret")
            .header("Keep-Alive", "timeout=99")
            .header("Proxy-Authorization", "Basic c2VjcmV0")
            .header("Proxy-Connection", "keep-alive")
            .header("TE", "trailers, deflate")
            .header("X-Kept", "kept");
        assert_eq!(gateway.request(request).await.status, 200);
    }
    for received in upstream.received() {
        for gone in [
            "x-named",
            "x-also-named",
            "keep-alive",
            "proxy-authorization",
            "proxy-connection",
            "upgrade",
            "expect",
        ] {
            assert_eq!(received.header(gone), None, "{gone}: {received:?}");
        }
        assert!(received.header("connection").is_none_or(|it| it == "keep-alive"), "{received:?}");
        assert!(received.header("te").is_none_or(|it| it == "trailers"), "{received:?}");
        assert_eq!(received.header("x-kept"), Some("kept"));
    }
}

/// RFC 9110, 7.6.1: `Connection` may name hop-by-hop headers only. A client could otherwise make the gateway remove a
/// header that it has acted on.
#[tokio::test]
async fn connection_may_not_name_what_the_gateway_or_the_upstream_goes_by() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    for named in [
        "Host",
        "Content-Length",
        "content-type",
        "Content-Encoding",
        "Idempotency-Key",
        "Authorization",
        "cookie",
        "X-Forwarded-For",
        "x-forwarded-anything",
        "Forwarded",
        "X-Real-IP",
        "Via",
        "Semel-Attempt",
    ] {
        for named in [named.to_owned(), format!("close, {named}"), format!("{named} ,TE")] {
            let request = TestRequest::charge("k").header("Connection", &named);
            gateway.request(request).await.assert_problem(400, "connection-invalid");
        }
        let second =
            TestRequest::get("/orders").header("Connection", "close").header("Connection", named);
        gateway.request(second).await.assert_problem(400, "connection-invalid");
    }
    assert_eq!(upstream.count(), 0);
    let usual = "keep-alive, TE, Upgrade, HTTP2-Settings, Transfer-Encoding, Trailer, X-Own";
    let request = TestRequest::charge("k").header("Connection", usual).header("X-Own", "1");
    gateway.request(request).await.assert_ran("run 1");
    assert_eq!(upstream.only().header("x-own"), None);
}

/// Without it the upstream would serve another caller than the one whose key was used.
#[tokio::test]
async fn the_header_that_names_the_caller_is_passed_on_though_connection_names_it() {
    for (principal, header, value) in [
        ("header:X-User", "X-User", "7"),
        ("authorization", "Authorization", "Bearer a"),
        ("header:X-Forwarded-User", "X-Forwarded-User", "7"),
    ] {
        let upstream = TestUpstream::counting().await;
        let gateway = Setup::to(&upstream).flag("--principal", principal).start().await;
        for (number, request) in
            [TestRequest::charge("k"), TestRequest::get("/orders")].into_iter().enumerate()
        {
            let request =
                request.header(header, value).header("Connection", &header.to_lowercase());
            gateway.request(request).await.assert_ran(&format!("run {}", number + 1));
            let received = upstream.received().pop().unwrap();
            assert_eq!(
                received.header(&header.to_lowercase()),
                Some(value),
                "{principal}: {received:?}"
            );
        }
    }
}

#[tokio::test]
async fn hop_by_hop_headers_of_a_response_are_removed() {
    let headers = "Connection: X-Named, keep-alive\r\nX-Named: secret\r\nKeep-Alive: timeout=99\r\n\
                   Proxy-Authenticate: Basic\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\n\
                   X-Kept: kept\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n";
    let upstream = TestUpstream::start(move |_| ScriptedReply::with(200, headers, "hello")).await;
    let gateway = Setup::to(&upstream).start().await;
    for request in
        [TestRequest::get("/orders"), TestRequest::post("/orders"), TestRequest::charge("k")]
    {
        let response = gateway.request(request).await;
        assert_eq!(response.text(), "hello");
        for gone in ["x-named", "keep-alive", "proxy-authenticate", "proxy-connection", "upgrade"] {
            assert_eq!(response.header(gone), None, "{gone}: {response:?}");
        }
        assert!(
            response.header("connection").is_none_or(|it| !it.contains("named")),
            "{response:?}"
        );
        assert_eq!(response.header("x-kept"), Some("kept"));
        let cookies = response.headers.iter().filter(|(name, _)| name == "set-cookie").count();
        assert_eq!(cookies, 2, "{response:?}");
    }
}

#[tokio::test]
async fn the_host_is_the_upstreams() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    gateway.request(TestRequest::get("/orders").host("other.example:81")).await.assert_ran("run 1");
    assert_eq!(upstream.only().all("host"), [upstream.address.to_string()]);
}

#[tokio::test]
async fn the_clients_host_is_kept_with_preserve_host() {
    let upstream = TestUpstream::counting().await;
    let config = format!(
        "[upstreams.shop]\nurl = \"http://{}\"\npreserve_host = true\n\
         [[routes]]\nmatch = \"/{{*rest}}\"\nupstream = \"shop\"\n",
        upstream.address
    );
    let gateway = Setup::new().config(&config).start().await;
    gateway.request(TestRequest::get("/orders").host("other.example:81")).await.assert_ran("run 1");
    gateway.request(TestRequest::charge("a").host("other.example:81")).await.assert_ran("run 2");
    for received in upstream.received() {
        assert_eq!(received.all("host"), ["other.example:81"]);
    }
}

/// They are the gateway's headers, and the upstream may trust them.
#[tokio::test]
async fn semel_headers_of_a_client_are_removed() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    for request in
        [TestRequest::get("/orders"), TestRequest::post("/orders"), TestRequest::charge("k")]
    {
        let request = request
            .header("Semel-Attempt", "77")
            .header("SEMEL-TOKEN", "77")
            .header("Semel-Status", "77")
            .header("semel-anything", "77");
        assert_eq!(gateway.request(request).await.status, 200);
    }
    for received in upstream.received() {
        let spoofed =
            |(name, value): &(String, String)| name.starts_with("semel-") && value == "77";
        assert!(!received.headers.iter().any(spoofed), "{received:?}");
    }
}
