//! Two gateways on one store act like one.

use super::{SharedStore, on_all};
use crate::harness::{
    ClientConnection, GatewayProcess, PATIENCE, ScriptedReply, TestRequest, TestUpstream, run,
    until,
};

on_all! {
    a_race_over_two_gateways_runs_once
    a_waiter_at_another_gateway_gets_the_outcome
    replays_are_the_same_bytes_everywhere
    the_key_of_a_gateway_that_was_killed_is_free_after_its_lease
    what_an_operator_forgets_runs_again_in_spite_of_caches
    a_gateway_is_ready_and_shows_no_password
    namespaces_keep_the_keys_of_services_apart
}

async fn two(store: &SharedStore, upstream: &TestUpstream) -> [GatewayProcess; 2] {
    let setup = store.to(upstream).flag("--wait", "15s");
    [setup.start().await, setup.start().await]
}

async fn a_race_over_two_gateways_runs_once(store: SharedStore) {
    const CALLERS: usize = 200;
    let upstream = TestUpstream::gated().await;
    let nodes = two(&store, &upstream).await;
    let mut connections: Vec<ClientConnection> = Vec::new();
    for caller in 0..CALLERS {
        connections.push(nodes[caller % 2].send(TestRequest::charge("k")).await);
    }
    until("it runs", async || upstream.count() > 0).await;
    upstream.open_gate();
    let mut ran = 0;
    for connection in &mut connections {
        let response = connection.read_response().await.expect("a response");
        assert_eq!((response.status, response.text().as_str()), (200, "run 1"), "{response:?}");
        ran += usize::from(!response.is_replay());
    }
    assert_eq!((ran, upstream.count()), (1, 1));
}

async fn a_waiter_at_another_gateway_gets_the_outcome(store: SharedStore) {
    let upstream = TestUpstream::gated().await;
    let [one, other] = two(&store, &upstream).await;
    let mut owner = one.send(TestRequest::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    let mut waiter = other.send(TestRequest::charge("k")).await;
    upstream.open_gate();
    owner.read_response().await.unwrap().assert_ran("run 1");
    waiter.read_response().await.unwrap().assert_replay("run 1");
}

async fn replays_are_the_same_bytes_everywhere(store: SharedStore) {
    let body: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let sent = body.clone();
    let upstream = TestUpstream::start(move |_| {
        let headers =
            "Content-Type: application/octet-stream\r\nETag: \"a\"\r\nLocation: /orders/7\r\n";
        ScriptedReply::with(201, headers, &sent)
    });
    let upstream = upstream.await;
    let [one, other] = two(&store, &upstream).await;
    let cached = store.to(&upstream).flag("--cache", "100").start().await;
    let first = one.request(TestRequest::charge("k")).await;
    // The last replay is from a cache.
    for node in [&one, &other, &cached, &cached] {
        let replay = node.request(TestRequest::charge("k")).await;
        assert!(replay.is_replay(), "{replay:?}");
        assert_eq!((replay.status, &replay.body), (201, &body));
        for name in ["content-type", "etag", "location"] {
            assert_eq!(replay.header(name), first.header(name), "{name}");
        }
    }
    assert_eq!(upstream.count(), 1);
}

async fn the_key_of_a_gateway_that_was_killed_is_free_after_its_lease(store: SharedStore) {
    let upstream = TestUpstream::start(|received| match received.number {
        1 => ScriptedReply::nothing().stall(),
        number => ScriptedReply::ok(format!("run {number}")),
    });
    let upstream = upstream.await;
    let setup = store.to(&upstream).flag("--lease", "1s").flag("--wait", "100ms");
    let (one, other) = (setup.start().await, setup.start().await);
    let _wire = one.send(TestRequest::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    other.request(TestRequest::charge("k")).await.assert_problem(409, "in-progress");
    one.sigkill().await;
    until("it is free", async || other.request(TestRequest::charge("k")).await.status == 200).await;
    assert_eq!(upstream.received()[1].attempt(), Some("2"));
}

async fn what_an_operator_forgets_runs_again_in_spite_of_caches(store: SharedStore) {
    let upstream = TestUpstream::counting().await;
    let gateway = store.to(&upstream).flag("--cache", "100").start().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    for _ in 0..2 {
        gateway.request(TestRequest::charge("k")).await.assert_replay("run 1");
    }
    let key = store.json(&["keys", "list"]).await[0]["key"].as_str().unwrap().to_owned();
    store.stdout(&["keys", "forget", &key, "--reason", "a test"]).await;
    until("the cache has removed the outcome", async || {
        gateway.request(TestRequest::charge("k")).await.text() == "run 2"
    })
    .await;
}

async fn a_gateway_is_ready_and_shows_no_password(store: SharedStore) {
    let upstream = TestUpstream::counting().await;
    let setup = store.to(&upstream).flag("--admin", "127.0.0.1:0");
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    let ready = crate::harness::request_to(admin, TestRequest::get("/readyz")).await;
    assert_eq!((ready.status, ready.text().as_str()), (200, "ready\n"));
    gateway.sigterm();
    assert_eq!(gateway.wait_exit(PATIENCE).await, Some(0));
    let store =
        store.url.replacen("://", "://u:hunter2@", 1).replacen("hunter2@postgres@", "hunter2@", 1);
    let words = ["config", "check", "--upstream", "http://a:1", "--principal", "anonymous"];
    let words = [&words[..], &["--namespace", "n", "--store", &store]].concat();
    let checked = run(setup.folder(), &words).await;
    assert_eq!(checked.code, Some(0), "{checked:#?}");
    assert!(checked.stdout.contains("://u@127.0.0.1"), "{checked:#?}");
    assert!(!format!("{checked:?}").contains("hunter2"), "{checked:#?}");
}

async fn namespaces_keep_the_keys_of_services_apart(store: SharedStore) {
    let upstream = TestUpstream::counting().await;
    let payments = store.to(&upstream).start().await;
    let refunds = store.to(&upstream).flag("--namespace", "refunds").start().await;
    payments.request(TestRequest::charge("k")).await.assert_ran("run 1");
    refunds.request(TestRequest::charge("k")).await.assert_ran("run 2");
    payments.request(TestRequest::charge("k")).await.assert_replay("run 1");
}
