//! Other ways to write a request are no ways around a rule.

use crate::harness::{ScriptedReply, Setup, TestRequest, TestUpstream, run};

/// As long a target as gets in, behind a base. On hold, a key is lost if anything seems to have run.
#[tokio::test]
async fn a_target_that_gets_too_long_is_refused_and_leaves_its_key_free() {
    let upstream = TestUpstream::counting().await;
    let url = format!("http://{}/{}", upstream.address, "services/payments/".repeat(5));
    let setup = Setup::new().flag("--upstream", url.trim_end_matches('/'));
    let gateway = setup.flag("--on-lost-owner", "hold").start().await;
    let target = format!("/{}", "a".repeat(65_450));
    for request in [
        TestRequest::post(&target).key("k"),
        TestRequest::post(&target).key("k"),
        TestRequest::get(&target),
    ] {
        let mut connection = gateway.send(request.host("a")).await;
        let response = connection.read_response().await.expect("a response");
        assert!([400, 414].contains(&response.status), "{}: {}", response.status, response.text());
    }
    assert!(!gateway.stderr().contains("panicked"), "{}", gateway.stderr());
}

/// A method is a method in capitals; some frameworks read it in any case.
#[tokio::test]
async fn a_method_in_another_case_does_not_bypass_the_key() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).switch("--require-key").start().await;
    for method in ["post", "Post"] {
        let response = gateway.request(TestRequest::method(method, "/orders")).await;
        assert!((400..500).contains(&response.status), "{response:?}");
    }
    assert_eq!(upstream.count(), 0);
}

/// Another spelling is no way around a route.
#[tokio::test]
async fn slashes_do_not_bypass_a_route() {
    let upstream = TestUpstream::counting().await;
    let config = "[[routes]]\nmatch = \"POST /refunds/{id}\"\nrequire_key = true\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    for target in ["/refunds/7", "//refunds/7", "/refunds//7", "/refunds/7/"] {
        let response = gateway.request(TestRequest::post(target)).await;
        assert!((400..500).contains(&response.status), "{target}: {response:?}");
    }
    assert_eq!(upstream.count(), 0);
}

/// Where an upstream reads headers as CGI variables, `_` and `-` are one.
#[tokio::test]
async fn headers_that_look_like_the_gateways_are_removed() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    let names = [
        "X-Forwarded-Prefix",
        "X-Forwarded-Scheme",
        "X-Forwarded-Ssl",
        "X_Forwarded_For",
        "X_Forwarded_Host",
        "Idempotency_Key",
        "Semel_Token",
    ];
    let request =
        names.iter().fold(TestRequest::charge("k"), |request, name| request.header(name, "evil"));
    gateway.request(request).await.assert_ran("run 1");
    let received = upstream.only();
    let evil: Vec<_> = received.headers.iter().filter(|(_, value)| value == "evil").collect();
    assert!(evil.is_empty(), "{evil:?}");
}

/// A service that finds its tenant by `X-Forwarded-Host`, as many frameworks do.
#[tokio::test]
async fn an_outcome_is_not_replayed_on_another_host_that_the_upstream_sees() {
    let upstream = TestUpstream::start(|received| {
        ScriptedReply::ok(format!(
            "charged at {}",
            received.header("x-forwarded-host").unwrap_or("none")
        ))
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    for host in ["a.example", "b.example"] {
        let response = gateway.request(TestRequest::charge("k").host(host)).await;
        assert!(
            !response.text().contains("example") || response.text().contains(host),
            "{response:?}"
        );
    }
}

#[tokio::test]
async fn head_goes_where_get_goes() {
    let (default, reports) = (
        TestUpstream::counting().await,
        TestUpstream::start(|_| ScriptedReply::with(200, "", "")).await,
    );
    let config = format!(
        "[upstreams.reports]\nurl = \"http://{}\"\n[[routes]]\nmatch = \"GET /reports\"\nupstream = \"reports\"\n",
        reports.address
    );
    let gateway = Setup::to(&default).config(&config).start().await;
    gateway.request(TestRequest::get("/reports")).await;
    gateway.request(TestRequest::head_of("/reports")).await;
    assert_eq!((default.count(), reports.count()), (0, 2));
}

#[tokio::test]
async fn the_case_of_a_host_does_not_matter() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    gateway.request(TestRequest::charge("k").host("shop.example")).await.assert_ran("run 1");
    gateway.request(TestRequest::charge("k").host("Shop.Example")).await.assert_replay("run 1");
}

/// What can be started is checked by the same rules as what is started.
#[tokio::test]
async fn a_check_finds_routes_that_are_one_in_two_spellings() {
    let folder = tempfile::tempdir().unwrap();
    for (one, other) in [("/a", "POST /a/"), ("/a", "POST /%61"), ("POST /a//b", "POST /a/b")] {
        let config = format!(
            "upstream = \"http://127.0.0.1:1\"\nprincipal = \"anonymous\"\nstore = \"memory:\"\n\
             [[routes]]\nmatch = \"{one}\"\n[[routes]]\nmatch = \"{other}\"\n"
        );
        std::fs::write(folder.path().join("semel.toml"), config).unwrap();
        let started = run(folder.path(), &["gateway", "--listen", "127.0.0.1:0"]).await;
        assert_ne!(started.code, Some(0), "{started:#?}");
        run(folder.path(), &["config", "check"]).await.assert_stderr(&[2], &["semel.toml:7"]);
    }
}

/// Without a template the path itself names the operation.
#[tokio::test]
async fn an_escaped_letter_in_a_path_does_not_run_twice() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    gateway.request(TestRequest::post("/abc").key("k").body("5 EUR")).await.assert_ran("run 1");
    gateway
        .request(TestRequest::post("/%61bc").key("k").body("5 EUR"))
        .await
        .assert_replay("run 1");
    gateway.request(TestRequest::post("/a%2fc").key("k").body("5 EUR")).await.assert_ran("run 2");
    gateway
        .request(TestRequest::post("/a%2Fc").key("k").body("5 EUR"))
        .await
        .assert_replay("run 2");
}

#[tokio::test]
async fn the_host_is_compared_unless_compare_host_is_off() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    gateway.request(TestRequest::charge("k").host("a.example")).await.assert_ran("run 1");
    let refused = gateway.request(TestRequest::charge("k").host("b.example")).await;
    assert_eq!(refused.header("semel-status"), Some("fingerprint-mismatch"));
    assert!(refused.text().contains("differs in: host;"), "{}", refused.text());
    let gateway = Setup::to(&upstream).flag("--compare-host", "false").start().await;
    gateway.request(TestRequest::charge("k").host("a.example:8080")).await.assert_ran("run 2");
    gateway.request(TestRequest::charge("k").host("a.example:8081")).await.assert_replay("run 2");
}
