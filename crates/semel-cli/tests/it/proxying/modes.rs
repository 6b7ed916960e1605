//! Enforce, observe and off, by flag and by route.

use crate::harness::{Setup, TestRequest, TestUpstream};

#[tokio::test]
async fn observe_touches_nothing() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).flag("--mode", "observe").start().await;
    for number in 1..=2 {
        gateway.request(TestRequest::charge("k")).await.assert_ran(&format!("run {number}"));
    }
    for received in upstream.received() {
        assert_eq!((received.key(), received.attempt()), (Some("k"), None));
        assert_eq!(received.body, b"5 EUR");
    }
}

/// The downstream key is the same before and after a route is switched off.
#[tokio::test]
async fn off_runs_every_time_under_the_same_downstream_key() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let gateway = setup.start().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    gateway.sigkill().await;
    let gateway = setup.flag("--mode", "off").start().await;
    for number in 2..=3 {
        gateway.request(TestRequest::charge("k")).await.assert_ran(&format!("run {number}"));
    }
    let received = upstream.received();
    assert!(received.iter().all(|it| it.key() == received[0].key()), "{received:?}");
}

#[tokio::test]
async fn a_route_has_its_own_mode() {
    let upstream = TestUpstream::counting().await;
    let config = "mode = \"off\"\n[[routes]]\nmatch = \"POST /guarded\"\nmode = \"enforce\"\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    gateway.request(TestRequest::post("/guarded").key("k")).await.assert_ran("run 1");
    gateway.request(TestRequest::post("/guarded").key("k")).await.assert_replay("run 1");
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 2");
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 3");
}
