//! Other ways to write a request are no ways around a rule.

use crate::harness::{Ask, Reply, Setup, Upstream};

/// As long a target as gets in, behind a base. On hold, a key is lost if anything seems to have run.
#[tokio::test]
async fn a_target_that_gets_too_long_is_refused_and_leaves_its_key_free() {
    let upstream = Upstream::counting().await;
    let url = format!("http://{}/{}", upstream.address, "services/payments/".repeat(5));
    let setup = Setup::new().flag("--upstream", url.trim_end_matches('/'));
    let gateway = setup.flag("--on-lost-owner", "hold").start().await;
    let target = format!("/{}", "a".repeat(65_450));
    for ask in [Ask::post(&target).key("k"), Ask::post(&target).key("k"), Ask::get(&target)] {
        let mut wire = gateway.send(ask.host("a")).await;
        let answer = wire.hear().await.expect("an answer");
        assert!([400, 414].contains(&answer.status), "{}: {}", answer.status, answer.text());
    }
    assert!(!gateway.stderr().contains("panicked"), "{}", gateway.stderr());
}

/// A method is a method in capitals; some frameworks read it in any case.
#[tokio::test]
async fn a_method_in_another_case_is_no_way_around_a_key() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::to(&upstream).switch("--require-key").start().await;
    for method in ["post", "Post"] {
        let answer = gateway.ask(Ask::method(method, "/orders")).await;
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    assert_eq!(upstream.count(), 0);
}

/// Another spelling is no way around a route.
#[tokio::test]
async fn slashes_are_no_way_around_a_route() {
    let upstream = Upstream::counting().await;
    let config = "[[routes]]\nmatch = \"POST /refunds/{id}\"\nrequire_key = true\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    for target in ["/refunds/7", "//refunds/7", "/refunds//7", "/refunds/7/"] {
        let answer = gateway.ask(Ask::post(target)).await;
        assert!((400..500).contains(&answer.status), "{target}: {answer:?}");
    }
    assert_eq!(upstream.count(), 0);
}

/// Where an upstream reads headers as CGI variables, `_` and `-` are one.
#[tokio::test]
async fn what_an_upstream_may_take_for_ours_stays_behind() {
    let upstream = Upstream::counting().await;
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
    let ask = names.iter().fold(Ask::charge("k"), |ask, name| ask.header(name, "evil"));
    gateway.ask(ask).await.assert_ran("run 1");
    let seen = upstream.only();
    let evil: Vec<_> = seen.headers.iter().filter(|(_, value)| value == "evil").collect();
    assert!(evil.is_empty(), "{evil:?}");
}

/// A service that asks `X-Forwarded-Host` for its tenant, as many frameworks do.
#[tokio::test]
async fn an_outcome_is_not_shown_on_another_host_that_the_upstream_is_told_of() {
    let upstream = Upstream::start(|seen| {
        Reply::ok(format!("charged at {}", seen.header("x-forwarded-host").unwrap_or("nobody")))
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    for host in ["a.example", "b.example"] {
        let answer = gateway.ask(Ask::charge("k").host(host)).await;
        assert!(!answer.text().contains("example") || answer.text().contains(host), "{answer:?}");
    }
}
