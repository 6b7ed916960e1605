//! `semel keys resolve`: an operator decides what becomes of a key on hold.

use std::fs;

use super::{
    StoppedStore,
    seals::{fresh, write_keys},
};
use crate::harness::{
    ClientResponse, GatewayProcess, PATIENCE, ScriptedReply, Setup, TestRequest, TestUpstream,
    until,
};

/// An upstream that closes the connection on the first request, and answers the others.
async fn breaking_off() -> TestUpstream {
    TestUpstream::start(|received| match received.number {
        1 => ScriptedReply::nothing().close(),
        number => ScriptedReply::ok(format!("run {number}")),
    })
    .await
}

/// Sends a request that the upstream breaks off; its key becomes Unknown.
pub(crate) async fn breaks_off(gateway: &GatewayProcess, key: &str) {
    let broken = gateway.request(TestRequest::charge(key)).await;
    broken.assert_problem(409, "outcome-unknown");
    assert!(broken.text().contains("The upstream"), "{broken:?}");
    // The client has its response before the verdict is stored.
    until("it is unknown", async || {
        let again = gateway.request(TestRequest::charge(key)).await;
        again.problem() == Some("outcome-unknown") && !again.text().contains("The upstream")
    })
    .await;
}

/// A store with a key that a gateway in hold mode left Unknown, and the hash of the key.
async fn held(upstream: &TestUpstream, setup: Setup) -> (StoppedStore, String) {
    let setup = setup.embedded().flag("--on-lost-owner", "hold");
    let mut gateway = setup.start().await;
    breaks_off(&gateway, "k").await;
    assert_eq!(upstream.count(), 1);
    gateway.sigterm();
    assert_eq!(gateway.wait_exit(PATIENCE).await, Some(0));
    let store = StoppedStore(setup);
    let hash = store.only().await;
    (store, hash)
}

/// The response that a client gets now.
async fn response_to(store: &StoppedStore, request: TestRequest) -> ClientResponse {
    let mut gateway = store.0.start().await;
    let response = gateway.request(request).await;
    gateway.sigterm();
    assert_eq!(gateway.wait_exit(PATIENCE).await, Some(0));
    response
}

#[tokio::test]
async fn an_unknown_key_is_shown_with_all_that_is_needed_to_decide() {
    let upstream = breaking_off().await;
    let (store, hash) = held(&upstream, Setup::to(&upstream)).await;
    let got = store.stdout(&["keys", "get", &hash[..8]]).await;
    let downstream_key = upstream.only().key().unwrap().to_owned();
    for word in
        ["unknown", "downstream key", &downstream_key, "attempts", "claimed", "lease", "hold"]
    {
        assert!(got.contains(word), "{word}: {got}");
    }
    for decision in ["--complete FILE", "--fail", "--rerun"] {
        let command = format!("semel keys resolve {} --token 1 {decision}", &hash[..8]);
        assert!(got.contains(&command), "{command}: {got}");
    }
    let json = store.json(&["keys", "get", &hash, "--derive", "charge"]).await.remove(0);
    assert_eq!(json["downstream_key"], downstream_key.as_str());
    let derived = json["derived_keys"]["charge"].as_str().unwrap();
    assert!(derived.len() == 36 && derived != downstream_key, "{json}");
}

#[tokio::test]
async fn an_effect_that_an_operator_found_is_recorded_and_replayed() {
    let upstream = breaking_off().await;
    let (store, hash) = held(&upstream, Setup::to(&upstream)).await;
    fs::write(store.0.folder().join("charge.json"), r#"{"id":"ch_7"}"#).unwrap();
    let response =
        ["--complete", "charge.json", "--status", "201", "--header", "Location: /charges/7"];
    let words = [&["keys", "resolve", &hash[..8]], &response[..], &["--reason", "INC-7"]].concat();
    let ended = store.semel(&words).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains(&hash) && ended.stdout.contains("completed"), "{ended:#?}");
    // The log has a line with the reason.
    for word in ["resolve", &hash[..8], "complete", "INC-7"] {
        assert!(ended.stderr.contains(word), "{word}: {ended:#?}");
    }
    let again = store.semel(&words).await;
    again.assert_stderr(&[1], &["it is completed", "nothing was changed"]);

    let response = response_to(&store, TestRequest::charge("k")).await;
    assert_eq!(
        (response.status, response.text().as_str()),
        (201, r#"{"id":"ch_7"}"#),
        "{response:?}"
    );
    assert!(response.is_replay(), "{response:?}");
    assert_eq!(response.header("location"), Some("/charges/7"));
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_final_failure_is_recorded_and_replayed() {
    let upstream = breaking_off().await;
    let (store, hash) = held(&upstream, Setup::to(&upstream)).await;
    let failed = ["--fail", "--status", "402", "--message", "card declined", "--reason", "INC-7"];
    let words = [&["keys", "resolve", &hash, "--json"], &failed[..]].concat();
    let ended = store.semel(&words).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&json["resolved"], &json["reason"]), (&"failed".into(), &"INC-7".into()));
    let response = response_to(&store, TestRequest::charge("k")).await;
    assert!(response.status == 402 && response.is_replay(), "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert!(response.text().contains("card declined"), "{response:?}");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_key_set_to_rerun_runs_with_the_same_payload_and_downstream_key() {
    let upstream = breaking_off().await;
    let (store, hash) = held(&upstream, Setup::to(&upstream)).await;
    let ended = store.semel(&["keys", "resolve", &hash, "--rerun", "--reason", "INC-7"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let other = response_to(&store, TestRequest::charge("k").body("6 EUR")).await;
    other.assert_problem(409, "fingerprint-mismatch");
    response_to(&store, TestRequest::charge("k")).await.assert_ran("run 2");
    let keys: Vec<_> =
        upstream.received().iter().map(|received| received.key().unwrap().to_owned()).collect();
    assert_eq!(keys[0], keys[1]);
}

/// The operator has looked at one run, and by now another one may be Unknown.
#[tokio::test]
async fn a_decision_with_a_token_is_for_that_run_alone() {
    let upstream = breaking_off().await;
    let (store, hash) = held(&upstream, Setup::to(&upstream)).await;
    let token = store.json(&["keys", "get", &hash]).await[0]["token"].to_string();
    let fail = ["keys", "resolve", &hash, "--fail", "--reason", "x", "--token"];
    let ended = store.semel(&[&fail[..], &["7"]].concat()).await;
    let words =
        ["has moved on", "--token 7", &format!("its token is {token}"), "nothing was changed"];
    ended.assert_stderr(&[1], &words);
    assert_eq!(store.json(&["keys", "get", &hash]).await[0]["state"], "unknown");
    assert_eq!(store.semel(&[&fail[..], &[&token]].concat()).await.code, Some(0));
}

#[tokio::test]
async fn a_key_without_effect_is_open_to_any_payload() {
    let upstream = breaking_off().await;
    let (store, hash) = held(&upstream, Setup::to(&upstream)).await;
    let words = ["keys", "resolve", &hash, "--rerun", "--no-effect", "--reason", "INC-7"];
    assert_eq!(store.semel(&words).await.code, Some(0));
    response_to(&store, TestRequest::charge("k").body("6 EUR")).await.assert_ran("run 2");
}

#[tokio::test]
async fn a_key_out_of_attempts_can_be_resolved() {
    let upstream = TestUpstream::start(|received| match received.number {
        1 => ScriptedReply::status(500, "try later"),
        number => ScriptedReply::ok(format!("run {number}")),
    })
    .await;
    let setup = Setup::to(&upstream).embedded().config("max_attempts = 1\n");
    let mut gateway = setup.start().await;
    assert_eq!(gateway.request(TestRequest::charge("k")).await.status, 500);
    for _ in 0..2 {
        gateway.request(TestRequest::charge("k")).await.assert_problem(409, "attempts-exhausted");
    }
    let logged = |text: &str| text.matches("is out of attempts").count();
    until("it is logged", async || logged(&gateway.stderr()) == 1).await;
    gateway.sigterm();
    assert_eq!(gateway.wait_exit(PATIENCE).await, Some(0));
    let store = StoppedStore(setup);
    let hash = store.only().await;
    let got = store.stdout(&["keys", "get", &hash]).await;
    assert!(got.contains("dead: out of attempts") && got.contains("semel keys resolve"), "{got}");
    let ended = store.semel(&["keys", "resolve", &hash[..8], "--rerun", "--reason", "x"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    response_to(&store, TestRequest::charge("k")).await.assert_ran("run 2");
}

#[tokio::test]
async fn only_a_key_that_waits_for_an_operator_can_be_resolved() {
    let store = StoppedStore::with(&["k"]).await;
    let hash = store.only().await;
    let rerun = ["--rerun", "--reason", "x"];
    let ended = store.semel(&[&["keys", "resolve", &hash], &rerun[..]].concat()).await;
    ended.assert_stderr(&[1], &[&hash[..8], "it is completed", "nothing was changed"]);
    let absent = "0".repeat(64);
    let ended = store.semel(&[&["keys", "resolve", &absent], &rerun[..]].concat()).await;
    ended.assert_stderr(&[1], &["no record of key", "nothing was changed"]);
    response_to(&store, TestRequest::charge("k")).await.assert_replay("card 4242");
}

/// Clients will get this response, so the command refuses a mistake in it before it records anything.
#[tokio::test]
async fn a_response_that_could_not_be_given_is_refused() {
    let upstream = breaking_off().await;
    let (store, hash) = held(&upstream, Setup::to(&upstream)).await;
    fs::write(store.0.folder().join("body"), "paid").unwrap();
    fs::write(store.0.folder().join("huge"), vec![b'x'; 33 << 20]).unwrap();
    for (response, words) in [
        (&["--complete", "body", "--status", "402"][..], &["--status 402", "--fail"][..]),
        (&["--complete", "body", "--status", "99"], &["--status 99", "200 to 599"]),
        (&["--complete", "body", "--status", "204"], &["--status 204", "/dev/null"]),
        (&["--complete", "nowhere"], &["--complete", "nowhere"]),
        (&["--complete", "huge"], &["--complete", "larger than"]),
        (&["--complete", "body", "--header", "Location"], &["--header", "NAME: VALUE"]),
        (&["--complete", "body", "--header", "Set-Cookie: a=b"], &["--header", "leave it out"]),
        (&["--complete", "body", "--header", "Content-Type: a/b"], &["use --content-type"]),
        (&["--fail", "--status", "200"], &["--status 200", "--complete"]),
    ] {
        let words_of = [&["keys", "resolve", &hash, "--reason", "x"], response].concat();
        store.semel(&words_of).await.assert_stderr(&[2], words);
    }
    assert_eq!(store.json(&["keys", "get", &hash]).await[0]["state"], "unknown");
}

/// The key of an owner that was killed can be resolved before any maintenance has run.
#[tokio::test]
async fn a_lost_owner_is_listed_and_can_be_resolved() {
    let upstream = TestUpstream::gated().await;
    let setup = Setup::to(&upstream).embedded().flag("--on-lost-owner", "hold");
    let gateway = setup.start().await;
    let _wire = gateway.send(TestRequest::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigkill().await;
    let store = StoppedStore(setup);
    let hash = store.only().await;
    let table = store.stdout(&["keys", "list"]).await;
    assert!(table.contains("lost owner") && !table.contains("in-progress"), "{table}");
    let got = store.stdout(&["keys", "get", &hash]).await;
    for word in ["lost owner: it may have happened", "lease over", "semel keys resolve"] {
        assert!(got.contains(word), "{word}: {got}");
    }
    for state in ["lost-owner", "in-progress"] {
        let listed = store.json(&["keys", "list", "--state", state]).await.remove(0);
        assert_eq!((&listed["key"], &listed["owner_lost"]), (&hash.as_str().into(), &true.into()));
        assert_eq!(listed["state"], "in-progress");
    }
    let ended = store.semel(&["keys", "resolve", &hash[..8], "--fail", "--reason", "x"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(store.json(&["keys", "list", "--state", "lost-owner"]).await.is_empty());
    assert_eq!(response_to(&store, TestRequest::charge("k")).await.status, 409);
}

/// Gateways with seal keys refuse unsealed outcomes.
#[tokio::test]
async fn an_outcome_among_sealed_ones_is_sealed() {
    let upstream = breaking_off().await;
    let setup = Setup::to(&upstream).flag("--seal-keys", "keys");
    let key = fresh(setup.folder(), "a").await;
    write_keys(&setup.folder().join("keys"), &[&key]);
    let (store, hash) = held(&upstream, setup).await;
    fs::write(store.0.folder().join("body"), "paid").unwrap();
    let words = ["keys", "resolve", &hash, "--complete", "body", "--reason", "x"];
    store.semel(&words).await.assert_stderr(&[2], &["sealed with a", "--seal-keys FILE"]);
    let ended = store.semel(&[&words[..], &["--seal-keys", "keys"]].concat()).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let shown = store.stdout(&["keys", "get", &hash, "--show-outcome"]).await;
    assert!(shown.contains("success, sealed") && !shown.contains("paid"), "{shown}");
    response_to(&store, TestRequest::charge("k")).await.assert_replay("paid");
}

#[tokio::test]
async fn a_key_that_waits_for_an_operator_is_logged_and_counted_at_once() {
    let upstream = TestUpstream::start(|_| ScriptedReply::nothing().close()).await;
    let setup = Setup::to(&upstream).flag("--on-lost-owner", "hold").flag("--admin", "127.0.0.1:0");
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    breaks_off(&gateway, "k").await;
    for _ in 0..3 {
        gateway.request(TestRequest::charge("k")).await.assert_problem(409, "outcome-unknown");
    }
    let page = crate::harness::request_to(admin, TestRequest::get("/metrics")).await.text();
    for line in ["idempotency_became_unknown_total 1", "idempotency_unknown 1"] {
        assert!(page.lines().any(|shown| shown == line), "{line}: {page}");
    }
    let logged = |text: &str| text.matches("waits for an operator").count();
    until("it is logged", async || logged(&gateway.stderr()) == 1).await;
}
