//! Who asks is part of every key: one caller never sees what another's request came to.

use std::time::{Duration, SystemTime};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::harness::{Ask, Gateway, Reply, Setup, Upstream};

const SECRET: &str = "a secret that is long enough for HS256, surely";

async fn stage(who: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::counting().await;
    let setup = Setup::to(&upstream).flag("--principal", who);
    std::fs::write(setup.folder().join("secret"), SECRET).unwrap();
    let gateway = setup.start().await;
    (upstream, gateway)
}

fn charge_as(header: &str, value: &str) -> Ask {
    Ask::charge("k").header(header, value)
}

/// Two of these callers have two key spaces, each of them one.
async fn are_kept_apart(gateway: &Gateway, header: &str, callers: [&str; 2]) {
    for (number, who) in callers.into_iter().enumerate() {
        gateway.ask(charge_as(header, who)).await.assert_ran(&format!("run {}", number + 1));
    }
    for (number, who) in callers.into_iter().enumerate() {
        gateway.ask(charge_as(header, who)).await.assert_replay(&format!("run {}", number + 1));
    }
}

/// Nobody is refused with a key, and passed on without one.
async fn nobody_is_refused(gateway: &Gateway, ask: Ask) {
    let refused = gateway.ask(ask).await;
    refused.assert_problem(401, "principal-missing");
    assert_eq!(gateway.ask(Ask::post("/orders").body("5 EUR")).await.status, 200);
    assert_eq!(gateway.ask(Ask::get("/orders").key("k")).await.status, 200);
}

#[tokio::test]
async fn two_credentials_have_two_key_spaces() {
    let (_upstream, gateway) = stage("authorization").await;
    are_kept_apart(&gateway, "Authorization", ["Bearer a", "Bearer b"]).await;
}

#[tokio::test]
async fn nobody_is_refused_by_credential() {
    let (upstream, gateway) = stage("authorization").await;
    nobody_is_refused(&gateway, Ask::charge("k")).await;
    let two = charge_as("Authorization", "Bearer a").header("Authorization", "Bearer b");
    gateway.ask(two).await.assert_problem(401, "principal-missing");
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn two_values_of_a_header_have_two_key_spaces() {
    let (_upstream, gateway) = stage("header:X-User").await;
    are_kept_apart(&gateway, "x-user", ["7", "8"]).await;
}

#[tokio::test]
async fn nobody_is_refused_by_header() {
    let (upstream, gateway) = stage("header:X-User").await;
    nobody_is_refused(&gateway, charge_as("Authorization", "Bearer a")).await;
    let two = charge_as("X-User", "7").header("X-User", "8");
    gateway.ask(two).await.assert_problem(401, "principal-missing");
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn anonymous_callers_share_one_key_space() {
    let (_upstream, gateway) = stage("anonymous").await;
    gateway.ask(charge_as("Authorization", "Bearer a")).await.assert_ran("run 1");
    gateway.ask(charge_as("Authorization", "Bearer b")).await.assert_replay("run 1");
    gateway.ask(Ask::charge("k")).await.assert_replay("run 1");
}

#[tokio::test]
async fn two_subjects_of_verified_tokens_have_two_key_spaces() {
    let (_upstream, gateway) = stage("jwt:secret").await;
    let (anna, ben) = (bearer(&claims("anna")), bearer(&claims("ben")));
    are_kept_apart(&gateway, "Authorization", [&anna, &ben]).await;
}

/// Tokens are short-lived, a subject is not.
#[tokio::test]
async fn a_new_token_of_the_same_subject_is_the_same_caller() {
    let (_upstream, gateway) = stage("jwt:secret").await;
    let mut later = claims("anna");
    gateway.ask(charge_as("Authorization", &bearer(&later))).await.assert_ran("run 1");
    later["exp"] = json!(now() + 7200);
    later["jti"] = json!("another");
    gateway.ask(charge_as("Authorization", &bearer(&later))).await.assert_replay("run 1");
}

#[tokio::test]
async fn the_same_subject_of_two_issuers_is_two_callers() {
    let (_upstream, gateway) = stage("jwt:secret").await;
    let mut other = claims("anna");
    other["iss"] = json!("https://other.example");
    let (ours, theirs) = (bearer(&claims("anna")), bearer(&other));
    are_kept_apart(&gateway, "Authorization", [&ours, &theirs]).await;
}

#[tokio::test]
async fn a_token_that_does_not_hold_is_nobodys() {
    let (upstream, gateway) = stage("jwt:secret").await;
    let good = bearer(&claims("anna"));
    let mut expired = claims("anna");
    expired["exp"] = json!(now() - 3600);
    let mut early = claims("anna");
    early["nbf"] = json!(now() + 3600);
    let without = |claim: &str| {
        let mut claims = claims("anna");
        claims.as_object_mut().unwrap().remove(claim);
        bearer(&claims)
    };
    let (unsigned, signature) = good.rsplit_once('.').unwrap();
    let header = unsigned.split(['.', ' ']).nth(1).unwrap();
    // {"alg":"none"}
    let none = good.replace(header, "eyJhbGciOiJub25lIn0");
    let other = bearer(&claims("ben"));
    let swapped = format!("{}.{signature}", other.rsplit_once('.').unwrap().0);
    let forged = token(&claims("anna"), "another secret, which is as long as the first");
    for bad in [
        bearer(&expired),
        bearer(&early),
        without("exp"),
        without("sub"),
        without("iss"),
        format!("Bearer {forged}"),
        format!("{}.", none.rsplit_once('.').unwrap().0),
        none,
        format!("{unsigned}."),
        unsigned.to_owned(),
        swapped,
        good.replace("Bearer ", "Basic "),
        good.replace("Bearer ", ""),
        "Bearer nonsense".to_owned(),
    ] {
        let answer = gateway.ask(charge_as("Authorization", &bad)).await;
        assert_eq!((answer.status, answer.problem()), (401, Some("principal-missing")), "{bad}");
    }
    nobody_is_refused(&gateway, Ask::charge("k")).await;
    assert_eq!(upstream.count(), 2);
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO).as_secs()
}

fn claims(subject: &str) -> Value {
    json!({"iss": "https://login.example", "sub": subject, "exp": now() + 3600})
}

fn bearer(claims: &Value) -> String {
    format!("Bearer {}", token(claims, SECRET))
}

/// Signed with HS256.
fn token(claims: &Value, secret: &str) -> String {
    encode(&Header::default(), claims, &EncodingKey::from_secret(secret.as_bytes())).unwrap()
}

#[tokio::test]
async fn a_challenge_of_the_upstream_is_its_own() {
    let upstream = Upstream::start(|_| {
        let headers = "Semel-Status: principal-missing\r\nWWW-Authenticate: Basic realm=\"x\"\r\n";
        Reply::with(401, headers, "")
    })
    .await;
    let gateway = Setup::to(&upstream).flag("--principal", "authorization").start().await;
    let answer = gateway.ask(Ask::get("/anything")).await;
    assert_eq!(answer.header("www-authenticate"), Some("Basic realm=\"x\""));
}
