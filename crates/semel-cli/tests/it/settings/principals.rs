//! The principal of a request.

use tempfile::TempDir;

use crate::harness::run;

/// Names are stored in the clear, so a header that holds a credential is refused as one.
#[tokio::test]
async fn a_header_that_is_a_credential_is_refused() {
    for (header, fix) in [
        ("Authorization", "write authorization"),
        ("Proxy-Authorization", "in the clear"),
        ("Cookie", "in the clear"),
    ] {
        let principal = format!("header:{header}");
        let check = ["config", "check", "--upstream", "http://a:1", "--principal", &principal];
        let ended = run(TempDir::new().unwrap().path(), &check).await;
        ended.assert_stderr(&[2], &["--principal", fix]);
    }
}
