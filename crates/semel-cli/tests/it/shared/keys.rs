//! Operator commands on a shared store, while gateways run.

use super::{SharedStore, on_all};
use crate::{
    harness::{ScriptedReply, TestRequest, TestUpstream, until},
    operators::resolve::breaks_off,
};

on_all! {
    keys_are_listed_got_and_forgotten
    a_held_key_is_resolved_while_a_gateway_runs
    a_lost_owner_is_resolved_without_a_gateway
    expired_records_are_purged
    a_migration_reports_what_it_did
    the_doctor_lists_what_it_checked
    the_doctor_does_not_set_the_hash_secret
}

async fn keys_are_listed_got_and_forgotten(store: SharedStore) {
    let upstream = TestUpstream::counting().await;
    let gateway = store.to(&upstream).start().await;
    for key in ["order-1", "order-2", "order-3"] {
        assert_eq!(gateway.request(TestRequest::charge(key)).await.status, 200);
    }
    let keys = store.json(&["keys", "list", "--state", "completed"]).await;
    let hashes: Vec<_> = keys.iter().map(|key| key["key"].as_str().unwrap()).collect();
    assert!(hashes.len() == 3 && hashes.is_sorted(), "{keys:?}");
    let rest = store.json(&["keys", "list", "--after", hashes[0]]).await;
    assert_eq!(rest, keys[1..]);

    let made_from = ["--principal", "anonymous", "--operation", "POST /orders/7"];
    let got = store.json(&[&["keys", "get", "order-2"], &made_from[..]].concat()).await;
    let hash = got[0]["key"].as_str().unwrap();
    assert_eq!(got, store.json(&["keys", "get", &hash[..8]]).await);
    assert_eq!(got[0]["namespace"], "payments");
    let table = store.stdout(&["keys", "list"]).await;
    assert!(table.contains("order-2") && table.contains("ago)"), "{table}");
    assert!(!table.contains("run 2"), "{table}");
    assert!(store.stdout(&["keys", "get", hash, "--show-outcome"]).await.contains("run 2"));

    store.stdout(&["keys", "forget", hash, "--reason", "INC-7"]).await;
    store.semel(&["keys", "get", hash]).await.assert_stderr(&[1], &["no record of key"]);
    gateway.request(TestRequest::charge("order-2")).await.assert_ran("run 4");
    assert!(store.json(&["keys", "list", "--namespace", "other"]).await.is_empty());
}

async fn a_held_key_is_resolved_while_a_gateway_runs(store: SharedStore) {
    let upstream = TestUpstream::start(|received| match received.number {
        1..=4 => ScriptedReply::nothing().close(),
        number => ScriptedReply::ok(format!("run {number}")),
    })
    .await;
    let setup = store.to(&upstream).flag("--on-lost-owner", "hold");
    let gateway = setup.start().await;
    for key in ["done", "failed", "again", "erased"] {
        breaks_off(&gateway, key).await;
    }
    let unknown = store.json(&["keys", "list", "--state", "unknown"]).await;
    let short = |id: &str| {
        let key = unknown.iter().find(|key| key["id"] == id).unwrap();
        key["key"].as_str().unwrap()[..8].to_owned()
    };
    let decide = async |words: &[&str]| store.stdout(&[words, &["--reason", "x"]].concat()).await;
    decide(&["keys", "resolve", &short("done"), "--complete", "/dev/null"]).await;
    decide(&["keys", "resolve", &short("failed"), "--fail", "--status", "422"]).await;
    decide(&["keys", "resolve", &short("again"), "--rerun"]).await;
    decide(&["keys", "erase", &short("erased")]).await;
    let again = ["keys", "resolve", &short("done"), "--rerun", "--reason", "x"];
    store.semel(&again).await.assert_stderr(&[1], &["it is completed", "nothing was changed"]);

    gateway.request(TestRequest::charge("done")).await.assert_replay("");
    let failed = gateway.request(TestRequest::charge("failed")).await;
    assert!(failed.status == 422 && failed.is_replay(), "{failed:?}");
    gateway.request(TestRequest::charge("again")).await.assert_ran("run 5");
    gateway.request(TestRequest::charge("erased")).await.assert_problem(410, "erased");
    assert!(store.json(&["keys", "list", "--state", "unknown"]).await.is_empty());
}

/// No gateway does maintenance here. On NATS a lease ends only for a process that has watched it.
async fn a_lost_owner_is_resolved_without_a_gateway(store: SharedStore) {
    let upstream = TestUpstream::gated().await;
    let setup = store.to(&upstream).flag("--on-lost-owner", "hold").flag("--lease", "1s");
    let gateway = setup.start().await;
    let _wire = gateway.send(TestRequest::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigkill().await;
    let listed = store.json(&["keys", "list", "--state", "in-progress"]).await;
    let short = &listed[0]["key"].as_str().unwrap()[..8];
    let fail = ["keys", "resolve", short, "--fail", "--status", "422", "--reason", "x"];
    store.stdout(&[&fail[..], &["--wait", "15s"]].concat()).await;
    let gateway = setup.start().await;
    let response = gateway.request(TestRequest::charge("k")).await;
    assert!(response.status == 422 && response.is_replay(), "{response:?}");
    assert_eq!(upstream.count(), 1);
}

async fn expired_records_are_purged(store: SharedStore) {
    let upstream = TestUpstream::counting().await;
    let setup = store.to(&upstream);
    let setup =
        setup.flag("--retention", "1s").flag("--failure-retention", "1s").flag("--lease", "1s");
    let gateway = setup.start().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    until("it has expired", async || store.json(&["keys", "list"]).await.is_empty()).await;
    let purged = store.json(&["purge"]).await;
    // Redis has deleted it itself.
    let deleted = if store.is_postgres() { 1 } else { 0 };
    assert_eq!((&purged[0]["deleted"], &purged[0]["held"]), (&deleted.into(), &0.into()));
    assert!(store.stdout(&["purge"]).await.contains("deleted 0"));
}

async fn a_migration_reports_what_it_did(store: SharedStore) {
    let (would, did, nothing) = (
        store.stdout(&["migrate", "--dry-run"]).await,
        store.stdout(&["migrate"]).await,
        store.stdout(&["migrate"]).await,
    );
    if !store.has_tables() {
        assert!(did.contains("nothing to migrate"), "{did}");
        return;
    }
    assert!(would.starts_with("would apply 1: "), "{would}");
    assert_eq!(did, would.replace("would apply", "applied"));
    assert!(nothing.contains("up to date"), "{nothing}");
    assert_eq!(store.json(&["migrate"]).await[0]["steps"], serde_json::json!([]));
}

async fn the_doctor_lists_what_it_checked(store: SharedStore) {
    store.stdout(&["migrate"]).await;
    let upstream = TestUpstream::counting().await;
    let gateway = store.to(&upstream).start().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    let output = store.stdout(&["doctor"]).await;
    for word in ["opened ", "hash secret", "namespace: payments", "cache", "records:", "clock:"] {
        assert!(output.contains(word), "{word}: {output}");
    }
    let json = store.json(&["doctor"]).await;
    assert_ne!(json[0]["worst"], "BAD", "{json:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_reports_the_last_failover() {
    let store = SharedStore::failover();
    store.stdout(&["migrate"]).await;
    assert!(store.stdout(&["doctor"]).await.contains("failover: no failback window is open"));
    let outage =
        "INSERT INTO {t}_meta (name, until) VALUES ('failover', now() + interval '1 hour')";
    store.sql_on_second(outage).await;
    let output = store.stdout(&["doctor"]).await;
    assert!(output.contains("PostgreSQL is still read for 3"), "{output}");
}

/// A doctor that runs before the first gateway must not set the hash secret.
async fn the_doctor_does_not_set_the_hash_secret(store: SharedStore) {
    store.stdout(&["migrate"]).await;
    let output = store.stdout(&["doctor"]).await;
    assert!(output.contains("settled the hash secret yet"), "{output}");
    let upstream = TestUpstream::counting().await;
    let setup = store.to(&upstream).variable("SEMEL_HASH_SECRET", "0123456789abcdef");
    setup.start().await.request(TestRequest::charge("k")).await.assert_ran("run 1");
}
