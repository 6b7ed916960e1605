//! Enforce, observe and off, by flag and by route.

use crate::harness::{Ask, Setup, Upstream};

#[tokio::test]
async fn observe_touches_nothing() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::to(&upstream).flag("--mode", "observe").start().await;
    for number in 1..=2 {
        gateway.ask(Ask::charge("k")).await.assert_ran(&format!("run {number}"));
    }
    for seen in upstream.seen() {
        assert_eq!((seen.key(), seen.attempt()), (Some("k"), None));
        assert_eq!(seen.body, b"5 EUR");
    }
}

/// What the upstream deduplicates on is the same before and after a route is switched off.
#[tokio::test]
async fn off_runs_every_time_under_the_same_downstream_key() {
    let upstream = Upstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let gateway = setup.start().await;
    gateway.ask(Ask::charge("k")).await.assert_ran("run 1");
    gateway.sigkill().await;
    let gateway = setup.flag("--mode", "off").start().await;
    for number in 2..=3 {
        gateway.ask(Ask::charge("k")).await.assert_ran(&format!("run {number}"));
    }
    let seen = upstream.seen();
    assert!(seen.iter().all(|it| it.key() == seen[0].key()), "{seen:?}");
}

#[tokio::test]
async fn a_route_has_its_own_mode() {
    let upstream = Upstream::counting().await;
    let config = "mode = \"off\"\n[[routes]]\nmatch = \"POST /guarded\"\nmode = \"enforce\"\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    gateway.ask(Ask::post("/guarded").key("k")).await.assert_ran("run 1");
    gateway.ask(Ask::post("/guarded").key("k")).await.assert_replay("run 1");
    gateway.ask(Ask::charge("k")).await.assert_ran("run 2");
    gateway.ask(Ask::charge("k")).await.assert_ran("run 3");
}
