//! The caller is part of every key: a caller never gets the outcome of another caller's request.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::harness::{
    GatewayProcess, ScriptedReply, Setup, TestRequest, TestUpstream, request_to, run, until,
};

const SECRET: &str = "c2VjcmV0LXRoYXQtaXMtbG9uZy1lbm91Z2gtZm9yLUhTMjU2";

async fn stage(principal: &str) -> (TestUpstream, GatewayProcess) {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).flag("--principal", principal);
    std::fs::write(setup.folder().join("secret"), SECRET).unwrap();
    let gateway = setup.start().await;
    (upstream, gateway)
}

fn charge_as(header: &str, value: &str) -> TestRequest {
    TestRequest::charge("k").header(header, value)
}

/// Asserts that each of these callers has a key space of its own.
async fn are_kept_apart(gateway: &GatewayProcess, header: &str, callers: [&str; 2]) {
    for (number, caller) in callers.into_iter().enumerate() {
        gateway.request(charge_as(header, caller)).await.assert_ran(&format!("run {}", number + 1));
    }
    for (number, caller) in callers.into_iter().enumerate() {
        gateway
            .request(charge_as(header, caller))
            .await
            .assert_replay(&format!("run {}", number + 1));
    }
}

/// A request without a caller is refused if it has a key, and forwarded if it has none.
async fn a_missing_caller_is_refused(gateway: &GatewayProcess, request: TestRequest) {
    let refused = gateway.request(request).await;
    refused.assert_problem(401, "principal-missing");
    assert_eq!(gateway.request(TestRequest::post("/orders").body("5 EUR")).await.status, 200);
    assert_eq!(gateway.request(TestRequest::get("/orders").key("k")).await.status, 200);
}

#[tokio::test]
async fn two_credentials_have_two_key_spaces() {
    let (_upstream, gateway) = stage("authorization").await;
    are_kept_apart(&gateway, "Authorization", ["Bearer a", "Bearer b"]).await;
}

#[tokio::test]
async fn a_request_without_a_credential_is_refused() {
    let (upstream, gateway) = stage("authorization").await;
    a_missing_caller_is_refused(&gateway, TestRequest::charge("k")).await;
    let two = charge_as("Authorization", "Bearer a").header("Authorization", "Bearer b");
    gateway.request(two).await.assert_problem(401, "principal-missing");
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn two_values_of_a_header_have_two_key_spaces() {
    let (_upstream, gateway) = stage("header:X-User").await;
    are_kept_apart(&gateway, "x-user", ["7", "8"]).await;
}

#[tokio::test]
async fn a_request_without_the_principal_header_is_refused() {
    let (upstream, gateway) = stage("header:X-User").await;
    a_missing_caller_is_refused(&gateway, charge_as("Authorization", "Bearer a")).await;
    let two = charge_as("X-User", "7").header("X-User", "8");
    gateway.request(two).await.assert_problem(401, "principal-missing");
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn anonymous_callers_share_one_key_space() {
    let (_upstream, gateway) = stage("anonymous").await;
    gateway.request(charge_as("Authorization", "Bearer a")).await.assert_ran("run 1");
    gateway.request(charge_as("Authorization", "Bearer b")).await.assert_replay("run 1");
    gateway.request(TestRequest::charge("k")).await.assert_replay("run 1");
}

#[tokio::test]
async fn two_subjects_of_verified_tokens_have_two_key_spaces() {
    let (_upstream, gateway) = stage("jwt-secret:secret").await;
    let (anna, ben) = (bearer(&claims("anna")), bearer(&claims("ben")));
    are_kept_apart(&gateway, "Authorization", [&anna, &ben]).await;
}

/// A caller gets new tokens, but keeps its subject.
#[tokio::test]
async fn a_new_token_of_the_same_subject_is_the_same_caller() {
    let (_upstream, gateway) = stage("jwt-secret:secret").await;
    let mut later = claims("anna");
    gateway.request(charge_as("Authorization", &bearer(&later))).await.assert_ran("run 1");
    later["exp"] = json!(now() + 7200);
    later["jti"] = json!("another");
    gateway.request(charge_as("Authorization", &bearer(&later))).await.assert_replay("run 1");
}

#[tokio::test]
async fn the_same_subject_of_two_issuers_is_two_callers() {
    let (_upstream, gateway) = stage("jwt-secret:secret").await;
    let mut other = claims("anna");
    other["iss"] = json!("https://other.example");
    let (ours, theirs) = (bearer(&claims("anna")), bearer(&other));
    are_kept_apart(&gateway, "Authorization", [&ours, &theirs]).await;
}

#[tokio::test]
async fn a_token_that_does_not_verify_is_refused() {
    let (upstream, gateway) = stage("jwt-secret:secret").await;
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
        let response = gateway.request(charge_as("Authorization", &bad)).await;
        assert_eq!(
            (response.status, response.problem()),
            (401, Some("principal-missing")),
            "{bad}"
        );
    }
    a_missing_caller_is_refused(&gateway, TestRequest::charge("k")).await;
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

/// The text of the file is public, so anyone could sign a token with it.
#[tokio::test]
async fn a_saved_error_page_is_no_key() {
    let page = "<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys"), page).unwrap();
    for setting in ["jwt:keys", "jwt-secret:keys"] {
        let args = ["gateway", "--upstream", "http://127.0.0.1:9", "--principal", setting];
        let ended = run(folder.path(), &[&args[..], &["--store", "memory:"]].concat()).await;
        ended.assert_stderr(&[2], &["--principal", "keys", "HTML", "JWKS"]);
    }
}

/// The PEM of a key pair, and of its public half.
fn pair(name: &str) -> (EncodingKey, Vec<u8>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../semel-gateway/tests/fixtures/jwt");
    let read = |file: String| std::fs::read(folder.join(file)).unwrap();
    let key = EncodingKey::from_ec_pem(&read(format!("{name}.private.pem"))).unwrap();
    (key, read(format!("{name}.pem")))
}

#[tokio::test]
async fn jwt_keys_are_replaced_while_the_gateway_runs_and_a_bad_file_changes_nothing() {
    let ((old, old_pem), (new, new_pem)) = (pair("p256"), pair("p384"));
    let signed = |alg, key: &EncodingKey| {
        let token = encode(&Header::new(alg), &claims("anna"), key).unwrap();
        charge_as("Authorization", &format!("Bearer {token}"))
    };
    let (by_old, by_new) = (signed(Algorithm::ES256, &old), signed(Algorithm::ES384, &new));
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).flag("--principal", "jwt:keys.pem");
    let setup = setup.flag("--admin", "127.0.0.1:0");
    let file = setup.folder().join("keys.pem");
    std::fs::write(&file, old_pem).unwrap();
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    gateway.request(&by_old).await.assert_ran("run 1");
    gateway.request(&by_new).await.assert_problem(401, "principal-missing");
    // Text that is no key: a token that is signed with it is refused, and the old key stays.
    let page = "<html><body>503 Service Unavailable, please try again</body></html>";
    std::fs::write(&file, page).unwrap();
    gateway.sighup();
    let refused = "semel_gateway_reloads_total{file=\"jwt_keys\",result=\"refused\"} ";
    let counted = |line: &str| line.strip_prefix(refused).is_some_and(|count| count != "0");
    until("it is refused", async || {
        let metrics = request_to(admin, TestRequest::get("/metrics")).await.text();
        metrics.lines().any(counted) && gateway.stderr().contains("JWT keys are not replaced")
    })
    .await;
    assert!(gateway.stderr().contains("HTML"), "{}", gateway.stderr());
    let forged = format!("Bearer {}", token(&claims("anna"), page));
    gateway
        .request(charge_as("Authorization", &forged))
        .await
        .assert_problem(401, "principal-missing");
    gateway.request(&by_old).await.assert_replay("run 1");
    assert_eq!(request_to(admin, TestRequest::get("/readyz")).await.status, 200);
    // The gateway notices that the file has changed.
    std::fs::write(&file, new_pem).unwrap();
    until("the new key is in force", async || gateway.request(&by_new).await.status == 200).await;
    gateway.request(&by_new).await.assert_replay("run 1");
    gateway.request(&by_old).await.assert_problem(401, "principal-missing");
    // Reading the same keys again is not counted as a change.
    gateway.sighup();
    until("it is read", async || gateway.stderr().contains("and are the same")).await;
    let changed = "semel_gateway_reloads_total{file=\"jwt_keys\",result=\"ok\"} 1";
    let metrics = request_to(admin, TestRequest::get("/metrics")).await.text();
    assert!(metrics.lines().any(|line| line == changed), "{metrics}");
}

/// The file as `curl -o secret` writes it when a proxy answers with an error: a token that is signed with this text is
/// forged.
#[tokio::test]
async fn an_error_message_does_not_take_the_place_of_a_secret() {
    let message =
        "upstream connect error or disconnect/reset before headers. reset reason: timeout";
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).flag("--principal", "jwt-secret:secret");
    let file = setup.folder().join("secret");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let gateway = setup.start().await;
    let good = charge_as("Authorization", &bearer(&claims("anna")));
    gateway.request(&good).await.assert_ran("run 1");
    std::fs::write(&file, message).unwrap();
    gateway.sighup();
    until("it is refused", async || gateway.stderr().contains("white space inside")).await;
    assert!(gateway.stderr().contains("JWT keys are not replaced"), "{}", gateway.stderr());
    let forged = format!("Bearer {}", token(&claims("anna"), message));
    gateway
        .request(charge_as("Authorization", &forged))
        .await
        .assert_problem(401, "principal-missing");
    gateway.request(&good).await.assert_replay("run 1");
}

#[tokio::test]
async fn a_gateway_without_key_files_survives_sighup() {
    let (_upstream, gateway) = stage("anonymous").await;
    gateway.sighup();
    until("it is logged", async || gateway.stderr().contains("SIGHUP")).await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
}

#[tokio::test]
async fn a_challenge_of_the_upstream_is_its_own() {
    let upstream = TestUpstream::start(|_| {
        let headers = "Semel-Status: principal-missing\r\nWWW-Authenticate: Basic realm=\"x\"\r\n";
        ScriptedReply::with(401, headers, "")
    })
    .await;
    let gateway = Setup::to(&upstream).flag("--principal", "authorization").start().await;
    let response = gateway.request(TestRequest::get("/anything")).await;
    assert_eq!(response.header("www-authenticate"), Some("Basic realm=\"x\""));
}
