//! The operators' commands over a URL, beside gateways that run.

use super::{Place, on_all};
use crate::{
    harness::{Ask, Reply, Upstream, until},
    operators::resolve::breaks_off,
};

on_all! {
    keys_are_listed_got_and_forgotten
    a_held_key_is_decided_about_beside_a_gateway
    a_lost_owner_is_decided_about_without_a_gateway
    what_has_expired_is_purged
    migrating_says_what_it_did
    a_doctor_says_what_it_looked_at
    a_doctor_settles_nothing
}

async fn keys_are_listed_got_and_forgotten(place: Place) {
    let upstream = Upstream::counting().await;
    let gateway = place.to(&upstream).start().await;
    for key in ["order-1", "order-2", "order-3"] {
        assert_eq!(gateway.ask(Ask::charge(key)).await.status, 200);
    }
    let keys = place.json(&["keys", "list", "--state", "completed"]).await;
    let hashes: Vec<_> = keys.iter().map(|key| key["key"].as_str().unwrap()).collect();
    assert!(hashes.len() == 3 && hashes.is_sorted(), "{keys:?}");
    let rest = place.json(&["keys", "list", "--after", hashes[0]]).await;
    assert_eq!(rest, keys[1..]);

    let made_from = ["--principal", "anonymous", "--operation", "POST /orders/7"];
    let got = place.json(&[&["keys", "get", "order-2"], &made_from[..]].concat()).await;
    let hash = got[0]["key"].as_str().unwrap();
    assert_eq!(got, place.json(&["keys", "get", &hash[..8]]).await);
    assert_eq!(got[0]["namespace"], "payments");
    let table = place.told(&["keys", "list"]).await;
    assert!(table.contains("order-2") && table.contains("ago)"), "{table}");
    assert!(!table.contains("run 2"), "{table}");
    assert!(place.told(&["keys", "get", hash, "--show-outcome"]).await.contains("run 2"));

    place.told(&["keys", "forget", hash, "--reason", "INC-7"]).await;
    place.semel(&["keys", "get", hash]).await.assert_says(&[1], &["no record of key"]);
    gateway.ask(Ask::charge("order-2")).await.assert_ran("run 4");
    assert!(place.json(&["keys", "list", "--namespace", "other"]).await.is_empty());
}

async fn a_held_key_is_decided_about_beside_a_gateway(place: Place) {
    let upstream = Upstream::start(|seen| match seen.number {
        1..=4 => Reply::nothing().close(),
        number => Reply::ok(format!("run {number}")),
    })
    .await;
    let setup = place.to(&upstream).flag("--on-lost-owner", "hold");
    let gateway = setup.start().await;
    for key in ["done", "failed", "again", "erased"] {
        breaks_off(&gateway, key).await;
    }
    let unknown = place.json(&["keys", "list", "--state", "unknown"]).await;
    let short = |id: &str| {
        let key = unknown.iter().find(|key| key["id"] == id).unwrap();
        key["key"].as_str().unwrap()[..8].to_owned()
    };
    let decide = async |words: &[&str]| place.told(&[words, &["--reason", "x"]].concat()).await;
    decide(&["keys", "resolve", &short("done"), "--complete", "/dev/null"]).await;
    decide(&["keys", "resolve", &short("failed"), "--fail", "--status", "422"]).await;
    decide(&["keys", "resolve", &short("again"), "--rerun"]).await;
    decide(&["keys", "erase", &short("erased")]).await;
    let again = ["keys", "resolve", &short("done"), "--rerun", "--reason", "x"];
    place.semel(&again).await.assert_says(&[1], &["it is completed", "nothing was changed"]);

    gateway.ask(Ask::charge("done")).await.assert_replay("");
    let failed = gateway.ask(Ask::charge("failed")).await;
    assert!(failed.status == 422 && failed.is_replay(), "{failed:?}");
    gateway.ask(Ask::charge("again")).await.assert_ran("run 5");
    gateway.ask(Ask::charge("erased")).await.assert_problem(410, "erased");
    assert!(place.json(&["keys", "list", "--state", "unknown"]).await.is_empty());
}

/// No gateway cleans up here. On NATS a lease is over only for a process that has watched it.
async fn a_lost_owner_is_decided_about_without_a_gateway(place: Place) {
    let upstream = Upstream::gated().await;
    let setup = place.to(&upstream).flag("--on-lost-owner", "hold").flag("--lease", "1s");
    let gateway = setup.start().await;
    let _wire = gateway.send(Ask::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigkill().await;
    let listed = place.json(&["keys", "list", "--state", "in-progress"]).await;
    let short = &listed[0]["key"].as_str().unwrap()[..8];
    let fail = ["keys", "resolve", short, "--fail", "--status", "422", "--reason", "x"];
    place.told(&[&fail[..], &["--wait", "15s"]].concat()).await;
    let gateway = setup.start().await;
    let answer = gateway.ask(Ask::charge("k")).await;
    assert!(answer.status == 422 && answer.is_replay(), "{answer:?}");
    assert_eq!(upstream.count(), 1);
}

async fn what_has_expired_is_purged(place: Place) {
    let upstream = Upstream::counting().await;
    let setup = place.to(&upstream);
    let setup =
        setup.flag("--retention", "1s").flag("--failure-retention", "1s").flag("--lease", "1s");
    let gateway = setup.start().await;
    gateway.ask(Ask::charge("k")).await.assert_ran("run 1");
    until("it has expired", async || place.json(&["keys", "list"]).await.is_empty()).await;
    let purged = place.json(&["purge"]).await;
    // Redis has deleted it by itself.
    let deleted = if place.is_postgres() { 1 } else { 0 };
    assert_eq!((&purged[0]["deleted"], &purged[0]["held"]), (&deleted.into(), &0.into()));
    assert!(place.told(&["purge"]).await.contains("deleted 0"));
}

async fn migrating_says_what_it_did(place: Place) {
    let (would, did, nothing) = (
        place.told(&["migrate", "--dry-run"]).await,
        place.told(&["migrate"]).await,
        place.told(&["migrate"]).await,
    );
    if !place.has_tables() {
        assert!(did.contains("nothing to migrate"), "{did}");
        return;
    }
    assert!(would.starts_with("would apply 1: "), "{would}");
    assert_eq!(did, would.replace("would apply", "applied"));
    assert!(nothing.contains("up to date"), "{nothing}");
    assert_eq!(place.json(&["migrate"]).await[0]["steps"], serde_json::json!([]));
}

async fn a_doctor_says_what_it_looked_at(place: Place) {
    place.told(&["migrate"]).await;
    let upstream = Upstream::counting().await;
    let gateway = place.to(&upstream).start().await;
    gateway.ask(Ask::charge("k")).await.assert_ran("run 1");
    let told = place.told(&["doctor"]).await;
    for word in ["opened ", "hash secret", "namespace: payments", "cache", "records:", "clock:"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    let json = place.json(&["doctor"]).await;
    assert_ne!(json[0]["worst"], "BAD", "{json:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doctor_knows_of_the_last_failover() {
    let place = Place::failover();
    place.told(&["migrate"]).await;
    assert!(place.told(&["doctor"]).await.contains("failover: nothing is left of an outage"));
    let outage =
        "INSERT INTO {t}_meta (name, until) VALUES ('failover', now() + interval '1 hour')";
    place.sql_on_second(outage).await;
    let told = place.told(&["doctor"]).await;
    assert!(told.contains("PostgreSQL has to be asked for 3"), "{told}");
}

/// Who looks first does not decide which hash secret all others need.
async fn a_doctor_settles_nothing(place: Place) {
    place.told(&["migrate"]).await;
    let told = place.told(&["doctor"]).await;
    assert!(told.contains("settled the hash secret yet"), "{told}");
    let upstream = Upstream::counting().await;
    let setup = place.to(&upstream).variable("SEMEL_HASH_SECRET", "0123456789abcdef");
    setup.start().await.ask(Ask::charge("k")).await.assert_ran("run 1");
}
