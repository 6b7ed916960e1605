//! A key on hold is no dead end: an operator finds out what happened and decides.

use std::fs;

use super::{
    Left,
    seals::{fresh, write_keys},
};
use crate::harness::{Answer, Ask, Gateway, PATIENCE, Reply, Setup, Upstream, until};

/// Breaks off the first request, and answers the others.
async fn breaking_off() -> Upstream {
    Upstream::start(|seen| match seen.number {
        1 => Reply::nothing().close(),
        number => Reply::ok(format!("run {number}")),
    })
    .await
}

/// The upstream breaks off, and the key becomes Unknown.
pub(crate) async fn breaks_off(gateway: &Gateway, key: &str) {
    let broken = gateway.ask(Ask::charge(key)).await;
    broken.assert_problem(409, "outcome-unknown");
    assert!(broken.text().contains("The upstream"), "{broken:?}");
    // The client has its answer before the store has the verdict.
    until("it is unknown", async || {
        let again = gateway.ask(Ask::charge(key)).await;
        again.problem() == Some("outcome-unknown") && !again.text().contains("The upstream")
    })
    .await;
}

/// A key that a gateway under Hold left Unknown, and its hash.
async fn held(upstream: &Upstream, setup: Setup) -> (Left, String) {
    let setup = setup.embedded().flag("--on-lost-owner", "hold");
    let mut gateway = setup.start().await;
    breaks_off(&gateway, "k").await;
    assert_eq!(upstream.count(), 1);
    gateway.sigterm();
    assert_eq!(gateway.wait_exit(PATIENCE).await, Some(0));
    let left = Left(setup);
    let hash = left.only().await;
    (left, hash)
}

/// What a client is answered with from now on.
async fn asked(left: &Left, ask: Ask) -> Answer {
    let mut gateway = left.0.start().await;
    let answer = gateway.ask(ask).await;
    gateway.sigterm();
    assert_eq!(gateway.wait_exit(PATIENCE).await, Some(0));
    answer
}

#[tokio::test]
async fn an_unknown_key_is_shown_with_all_that_is_needed_to_decide() {
    let upstream = breaking_off().await;
    let (left, hash) = held(&upstream, Setup::to(&upstream)).await;
    let got = left.told(&["keys", "get", &hash[..8]]).await;
    let asked_under = upstream.only().key().unwrap().to_owned();
    for word in ["unknown", "downstream key", &asked_under, "attempts", "claimed", "lease", "hold"]
    {
        assert!(got.contains(word), "{word}: {got}");
    }
    for decision in ["--complete FILE", "--fail", "--rerun"] {
        let command = format!("semel keys resolve {} --token 1 {decision}", &hash[..8]);
        assert!(got.contains(&command), "{command}: {got}");
    }
    let json = left.json(&["keys", "get", &hash, "--derive", "charge"]).await.remove(0);
    assert_eq!(json["downstream_key"], asked_under.as_str());
    let derived = json["derived_keys"]["charge"].as_str().unwrap();
    assert!(derived.len() == 36 && derived != asked_under, "{json}");
}

#[tokio::test]
async fn what_took_effect_is_recorded_and_replayed() {
    let upstream = breaking_off().await;
    let (left, hash) = held(&upstream, Setup::to(&upstream)).await;
    fs::write(left.0.folder().join("charge.json"), r#"{"id":"ch_7"}"#).unwrap();
    let answer =
        ["--complete", "charge.json", "--status", "201", "--header", "Location: /charges/7"];
    let words = [&["keys", "resolve", &hash[..8]], &answer[..], &["--reason", "INC-7"]].concat();
    let ended = left.semel(&words).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains(&hash) && ended.stdout.contains("completed"), "{ended:#?}");
    // A line for the log, as --reason promises.
    for word in ["resolve", &hash[..8], "complete", "INC-7"] {
        assert!(ended.stderr.contains(word), "{word}: {ended:#?}");
    }
    let again = left.semel(&words).await;
    again.assert_says(&[1], &["it is completed", "nothing was changed"]);

    let answer = asked(&left, Ask::charge("k")).await;
    assert_eq!((answer.status, answer.text().as_str()), (201, r#"{"id":"ch_7"}"#), "{answer:?}");
    assert!(answer.is_replay(), "{answer:?}");
    assert_eq!(answer.header("location"), Some("/charges/7"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn what_failed_for_good_is_recorded_and_replayed() {
    let upstream = breaking_off().await;
    let (left, hash) = held(&upstream, Setup::to(&upstream)).await;
    let failed = ["--fail", "--status", "402", "--message", "card declined", "--reason", "INC-7"];
    let words = [&["keys", "resolve", &hash, "--json"], &failed[..]].concat();
    let ended = left.semel(&words).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&json["resolved"], &json["reason"]), (&"failed".into(), &"INC-7".into()));
    let answer = asked(&left, Ask::charge("k")).await;
    assert!(answer.status == 402 && answer.is_replay(), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert!(answer.text().contains("card declined"), "{answer:?}");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn what_may_run_again_runs_with_the_same_payload_and_downstream_key() {
    let upstream = breaking_off().await;
    let (left, hash) = held(&upstream, Setup::to(&upstream)).await;
    let ended = left.semel(&["keys", "resolve", &hash, "--rerun", "--reason", "INC-7"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let other = asked(&left, Ask::charge("k").body("6 EUR")).await;
    other.assert_problem(409, "fingerprint-mismatch");
    asked(&left, Ask::charge("k")).await.assert_ran("run 2");
    let keys: Vec<_> = upstream.seen().iter().map(|seen| seen.key().unwrap().to_owned()).collect();
    assert_eq!(keys[0], keys[1]);
}

/// The operator has looked at one run, and another one may be Unknown by now.
#[tokio::test]
async fn a_decision_with_a_token_is_for_that_run_alone() {
    let upstream = breaking_off().await;
    let (left, hash) = held(&upstream, Setup::to(&upstream)).await;
    let token = left.json(&["keys", "get", &hash]).await[0]["token"].to_string();
    let fail = ["keys", "resolve", &hash, "--fail", "--reason", "x", "--token"];
    let ended = left.semel(&[&fail[..], &["7"]].concat()).await;
    let said =
        ["has moved on", "--token 7", &format!("its token is {token}"), "nothing was changed"];
    ended.assert_says(&[1], &said);
    assert_eq!(left.json(&["keys", "get", &hash]).await[0]["state"], "unknown");
    assert_eq!(left.semel(&[&fail[..], &[&token]].concat()).await.code, Some(0));
}

#[tokio::test]
async fn what_certainly_did_not_happen_leaves_the_key_for_any_payload() {
    let upstream = breaking_off().await;
    let (left, hash) = held(&upstream, Setup::to(&upstream)).await;
    let words = ["keys", "resolve", &hash, "--rerun", "--no-effect", "--reason", "INC-7"];
    assert_eq!(left.semel(&words).await.code, Some(0));
    asked(&left, Ask::charge("k").body("6 EUR")).await.assert_ran("run 2");
}

#[tokio::test]
async fn a_key_out_of_attempts_is_decided_about() {
    let upstream = Upstream::start(|seen| match seen.number {
        1 => Reply::status(500, "try later"),
        number => Reply::ok(format!("run {number}")),
    })
    .await;
    let setup = Setup::to(&upstream).embedded().config("max_attempts = 1\n");
    let mut gateway = setup.start().await;
    assert_eq!(gateway.ask(Ask::charge("k")).await.status, 500);
    for _ in 0..2 {
        gateway.ask(Ask::charge("k")).await.assert_problem(409, "attempts-exhausted");
    }
    let told = |text: &str| text.matches("is out of attempts").count();
    until("it is logged", async || told(&gateway.stderr()) == 1).await;
    gateway.sigterm();
    assert_eq!(gateway.wait_exit(PATIENCE).await, Some(0));
    let left = Left(setup);
    let hash = left.only().await;
    let got = left.told(&["keys", "get", &hash]).await;
    assert!(got.contains("dead: out of attempts") && got.contains("semel keys resolve"), "{got}");
    let ended = left.semel(&["keys", "resolve", &hash[..8], "--rerun", "--reason", "x"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    asked(&left, Ask::charge("k")).await.assert_ran("run 2");
}

#[tokio::test]
async fn nothing_but_a_key_that_waits_is_decided_about() {
    let left = Left::with(&["k"]).await;
    let hash = left.only().await;
    let rerun = ["--rerun", "--reason", "x"];
    let ended = left.semel(&[&["keys", "resolve", &hash], &rerun[..]].concat()).await;
    ended.assert_says(&[1], &[&hash[..8], "it is completed", "nothing was changed"]);
    let absent = "0".repeat(64);
    let ended = left.semel(&[&["keys", "resolve", &absent], &rerun[..]].concat()).await;
    ended.assert_says(&[1], &["no record of key", "nothing was changed"]);
    asked(&left, Ask::charge("k")).await.assert_replay("card 4242");
}

/// Clients will get this answer, so the command refuses a mistake in it before it records anything.
#[tokio::test]
async fn an_answer_that_could_not_be_given_is_refused() {
    let upstream = breaking_off().await;
    let (left, hash) = held(&upstream, Setup::to(&upstream)).await;
    fs::write(left.0.folder().join("body"), "paid").unwrap();
    fs::write(left.0.folder().join("huge"), vec![b'x'; 33 << 20]).unwrap();
    for (answer, words) in [
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
        let words_of = [&["keys", "resolve", &hash, "--reason", "x"], answer].concat();
        left.semel(&words_of).await.assert_says(&[2], words);
    }
    assert_eq!(left.json(&["keys", "get", &hash]).await[0]["state"], "unknown");
}

/// An owner that was killed is not at work, and its key need not wait for a cleanup to be decided about.
#[tokio::test]
async fn a_lost_owner_is_listed_as_such_and_decided_about() {
    let upstream = Upstream::gated().await;
    let setup = Setup::to(&upstream).embedded().flag("--on-lost-owner", "hold");
    let gateway = setup.start().await;
    let _wire = gateway.send(Ask::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigkill().await;
    let left = Left(setup);
    let hash = left.only().await;
    let table = left.told(&["keys", "list"]).await;
    assert!(table.contains("lost owner") && !table.contains("in-progress"), "{table}");
    let got = left.told(&["keys", "get", &hash]).await;
    for word in ["lost owner: it may have happened", "lease over", "semel keys resolve"] {
        assert!(got.contains(word), "{word}: {got}");
    }
    for state in ["lost-owner", "in-progress"] {
        let listed = left.json(&["keys", "list", "--state", state]).await.remove(0);
        assert_eq!((&listed["key"], &listed["owner_lost"]), (&hash.as_str().into(), &true.into()));
        assert_eq!(listed["state"], "in-progress");
    }
    let ended = left.semel(&["keys", "resolve", &hash[..8], "--fail", "--reason", "x"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(left.json(&["keys", "list", "--state", "lost-owner"]).await.is_empty());
    assert_eq!(asked(&left, Ask::charge("k")).await.status, 409);
}

/// Gateways with seal keys answer with nothing that is not sealed.
#[tokio::test]
async fn an_outcome_among_sealed_ones_is_sealed() {
    let upstream = breaking_off().await;
    let setup = Setup::to(&upstream).flag("--seal-keys", "keys");
    let key = fresh(setup.folder(), "a").await;
    write_keys(&setup.folder().join("keys"), &[&key]);
    let (left, hash) = held(&upstream, setup).await;
    fs::write(left.0.folder().join("body"), "paid").unwrap();
    let words = ["keys", "resolve", &hash, "--complete", "body", "--reason", "x"];
    left.semel(&words).await.assert_says(&[2], &["sealed with a", "--seal-keys FILE"]);
    let ended = left.semel(&[&words[..], &["--seal-keys", "keys"]].concat()).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let shown = left.told(&["keys", "get", &hash, "--show-outcome"]).await;
    assert!(shown.contains("success, sealed") && !shown.contains("paid"), "{shown}");
    asked(&left, Ask::charge("k")).await.assert_replay("paid");
}

#[tokio::test]
async fn a_key_that_waits_for_an_operator_is_logged_and_counted_at_once() {
    let upstream = Upstream::start(|_| Reply::nothing().close()).await;
    let setup = Setup::to(&upstream).flag("--on-lost-owner", "hold").flag("--admin", "127.0.0.1:0");
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    breaks_off(&gateway, "k").await;
    for _ in 0..3 {
        gateway.ask(Ask::charge("k")).await.assert_problem(409, "outcome-unknown");
    }
    let page = crate::harness::ask(admin, Ask::get("/metrics")).await.text();
    for line in ["idempotency_became_unknown_total 1", "idempotency_unknown 1"] {
        assert!(page.lines().any(|shown| shown == line), "{line}: {page}");
    }
    let told = |text: &str| text.matches("waits for an operator").count();
    until("it is logged", async || told(&gateway.stderr()) == 1).await;
}
