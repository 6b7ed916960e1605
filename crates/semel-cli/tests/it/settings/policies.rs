//! The effect of policy settings, and how `config check` shows it.

use super::{SettingsFolder, folder_with, row};
use crate::harness::{Setup, TestRequest, TestUpstream, run};

/// "An entry of [[routes]] may set each of these anew."
#[tokio::test]
async fn a_route_can_compare_bytes_again() {
    let upstream = TestUpstream::counting().await;
    let settings = "leave_out = ['/sent_at']\n\
                    [[routes]]\nmatch = 'POST /orders'\ncanonical_json = false\n";
    let setup = Setup::to(&upstream).config(settings);
    let check = ["config", "check", "--upstream", "http://a:1", "--principal", "anonymous"];
    let folder = folder_with(&[("semel.toml", settings)]);
    assert_eq!(run(folder.path(), &check).await.code, Some(0));
    let gateway = setup.start().await;
    let json = |body: &str| {
        TestRequest::post("/orders").key("k").header("Content-Type", "application/json").body(body)
    };
    gateway.request(json(r#"{"a":1,"sent_at":1}"#)).await.assert_ran("run 1");
    let response = gateway.request(json(r#"{"a":1,"sent_at":2}"#)).await;
    response.assert_problem(409, "fingerprint-mismatch");
}

#[test]
fn a_check_shows_that_bodies_are_compared_as_json() {
    let least = "upstream = 'http://a:1'\nprincipal = 'anonymous'\nleave_out = ['/sent_at']\n";
    let summary = SettingsFolder::with_file(least).good(&[], &[]);
    assert_eq!(row(&summary, "canonical_json").0, "true");
}
