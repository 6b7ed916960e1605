//! The upstream and the policy of a path.

use crate::harness::{GatewayProcess, ScriptedReply, Setup, TestRequest, TestUpstream, run};

/// An upstream that replies with its name.
async fn named(name: &'static str) -> TestUpstream {
    TestUpstream::start(move |_| ScriptedReply::ok(name)).await
}

fn upstream(name: &str, upstream: &TestUpstream) -> String {
    format!("[upstreams.{name}]\nurl = \"http://{}\"\n", upstream.address)
}

fn route(matched: &str, upstream: &str) -> String {
    format!("[[routes]]\nmatch = \"{matched}\"\nupstream = \"{upstream}\"\n")
}

async fn assert_responses(gateway: &GatewayProcess, requests: &[(TestRequest, &str)]) {
    for (request, name) in requests {
        let response = gateway.request(request).await;
        assert_eq!(response.text(), *name, "{request:?}");
    }
}

#[tokio::test]
async fn the_most_specific_template_wins() {
    let (shop, one, rest, fixed) =
        (named("shop").await, named("one").await, named("rest").await, named("fixed").await);
    let config = [
        upstream("rest", &rest),
        upstream("one", &one),
        upstream("fixed", &fixed),
        route("/a/{*rest}", "rest"),
        route("/b/{id}", "one"),
        route("/b/fixed", "fixed"),
        route("/a/fixed", "fixed"),
    ];
    let gateway = Setup::to(&shop).config(&config.concat()).start().await;
    let get = TestRequest::get;
    assert_responses(
        &gateway,
        &[
            (get("/a/fixed"), "fixed"),
            (get("/a/fixed?x=/a/7"), "fixed"),
            (get("/a/other"), "rest"),
            (get("/a/fixed/more"), "rest"),
            (get("/b/fixed"), "fixed"),
            (get("/b/other"), "one"),
            (get("/b/other/more"), "shop"),
            (get("/b"), "shop"),
            (get("/"), "shop"),
            (get("/A/fixed"), "shop"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_route_may_be_for_one_method() {
    let (shop, billing) = (named("shop").await, named("billing").await);
    let config = upstream("billing", &billing) + &route("POST /refunds/{id}", "billing");
    let gateway = Setup::to(&shop).config(&config).start().await;
    assert_responses(
        &gateway,
        &[
            (TestRequest::post("/refunds/7"), "billing"),
            (TestRequest::post("/refunds/7").key("k"), "billing"),
            (TestRequest::get("/refunds/7"), "shop"),
            (TestRequest::method("PUT", "/refunds/7"), "shop"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_path_without_a_route_is_not_found_where_there_is_no_default() {
    let shop = named("shop").await;
    let config = upstream("shop", &shop) + &route("/orders/{id}", "shop");
    let gateway = Setup::new().config(&config).start().await;
    assert_responses(&gateway, &[(TestRequest::get("/orders/7"), "shop")]).await;
    for request in [
        TestRequest::get("/other"),
        TestRequest::post("/other"),
        TestRequest::post("/other").key("k"),
    ] {
        gateway.request(request).await.assert_problem(404, "no-route");
    }
    assert_eq!(shop.count(), 1);
}

/// The operation of a key is the template of the route, and the path is part of the fingerprint.
#[tokio::test]
async fn a_key_is_used_once_under_a_template() {
    let upstream = TestUpstream::counting().await;
    let config = "[[routes]]\nmatch = \"POST /orders/{id}\"\nretention = \"1h\"\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    gateway.request(TestRequest::post("/orders/7").key("k")).await.assert_ran("run 1");
    let other = gateway.request(TestRequest::post("/orders/8").key("k")).await;
    other.assert_problem(409, "fingerprint-mismatch");
}

#[tokio::test]
async fn a_route_has_its_own_policy() {
    let upstream = TestUpstream::counting().await;
    let config = "require_key = true\nmismatch_status = 422\n\
                  [[routes]]\nmatch = \"POST /free\"\nrequire_key = false\nmismatch_status = 409\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    gateway.request(TestRequest::post("/orders")).await.assert_problem(400, "key-missing");
    gateway.request(TestRequest::post("/free")).await.assert_ran("run 1");
    for (path, status) in [("/orders", 422), ("/free", 409)] {
        assert_eq!(
            gateway.request(TestRequest::post(path).key("k").body("5 EUR")).await.status,
            200
        );
        let other = gateway.request(TestRequest::post(path).key("k").body("6 EUR")).await;
        other.assert_problem(status, "fingerprint-mismatch");
    }
}

/// Safe methods are protected on a route with a policy.
#[tokio::test]
async fn a_safe_method_is_guarded_only_under_a_policy() {
    let upstream = TestUpstream::counting().await;
    let config = "[[routes]]\nmatch = \"GET /report\"\nretention = \"1h\"\n\
                  [[routes]]\nmatch = \"/all\"\nretention = \"1h\"\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    gateway.request(TestRequest::get("/report").key("k")).await.assert_ran("run 1");
    gateway.request(TestRequest::get("/report").key("k")).await.assert_replay("run 1");
    gateway.request(TestRequest::get("/all").key("k")).await.assert_ran("run 2");
    gateway.request(TestRequest::get("/all").key("k")).await.assert_ran("run 3");
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let ran = gateway.request(TestRequest::method(method, "/all").key("k")).await;
        gateway
            .request(TestRequest::method(method, "/all").key("k"))
            .await
            .assert_replay(&ran.text());
    }
}

#[tokio::test]
async fn the_base_path_of_an_upstream_comes_first() {
    let upstream = TestUpstream::counting().await;
    let url = format!("http://{}/base", upstream.address);
    let gateway = Setup::new().flag("--upstream", &url).start().await;
    for request in
        [TestRequest::get("/orders?a=b"), TestRequest::get("/"), TestRequest::charge("k")]
    {
        assert_eq!(gateway.request(request).await.status, 200);
    }
    let targets: Vec<_> = upstream.received().into_iter().map(|received| received.target).collect();
    assert_eq!(targets, ["/base/orders?a=b", "/base/", "/base/orders/7"]);
}

/// A route for the reads of a path does not change its writes.
#[tokio::test]
async fn a_route_for_reads_takes_no_protection_from_writes() {
    let upstream = TestUpstream::counting().await;
    let routes = "[[routes]]\nmatch = 'POST /{*rest}'\nrequire_key = true\n\
                  [[routes]]\nmatch = 'GET /orders'\n";
    let gateway = Setup::to(&upstream).config(routes).start().await;
    gateway.request(TestRequest::post("/pay").body("x")).await.assert_problem(400, "key-missing");
    gateway
        .request(TestRequest::post("/orders").body("x"))
        .await
        .assert_problem(400, "key-missing");
}

/// RFC 3986 §6.2.2.1: the digits of an escape have no case.
#[tokio::test]
async fn another_spelling_of_an_escape_does_not_bypass_a_route() {
    let upstream = TestUpstream::counting().await;
    let routes = "[[routes]]\nmatch = 'POST /a%2Fb'\nrequire_key = true\n";
    let gateway = Setup::to(&upstream).config(routes).start().await;
    gateway.request(TestRequest::post("/a%2Fb").body("x")).await.assert_problem(400, "key-missing");
    gateway.request(TestRequest::post("/a%2fb").body("x")).await.assert_problem(400, "key-missing");
}

#[tokio::test]
async fn a_template_is_matched_or_refused() {
    for (template, path) in [("/%7Euser", "/%7Euser"), ("/%7Euser", "/~user"), ("/é", "/%C3%A9")] {
        let upstream = TestUpstream::counting().await;
        let routes = format!("[[routes]]\nmatch = 'POST {template}'\nrequire_key = true\n");
        let setup = Setup::to(&upstream).config(&routes);
        std::fs::write(setup.folder().join("semel.toml"), &routes).unwrap();
        let check = ["config", "check", "--upstream", "http://a:1", "--principal", "anonymous"];
        if run(setup.folder(), &check).await.code == Some(2) {
            continue;
        }
        let response = setup.start().await.request(TestRequest::post(path).body("x")).await;
        assert_eq!(response.status, 400, "{path} is not a {template}");
    }
}
