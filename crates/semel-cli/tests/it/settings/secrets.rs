//! The secret that keys are hashed with.

use std::fs;

use crate::harness::{CommandOutput, PATIENCE, Setup, TestRequest, TestUpstream, run};

/// Starts and ends a gateway on a store that then began with this secret, or with none.
async fn begun_with(secret: &[&str]) -> Setup {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    for (name, text) in [("one", "0123456789abcdef"), ("other", "fedcba9876543210")] {
        fs::write(setup.folder().join(name), text).unwrap();
    }
    let first = secret.iter().fold(setup.clone(), |it, file| it.flag("--hash-secret-file", file));
    for response in ["run 1", "replayed"] {
        let mut gateway = first.start().await;
        let charged = gateway.request(TestRequest::charge("k")).await;
        assert_eq!(charged.is_replay(), response == "replayed", "the same secret finds it again");
        gateway.sigterm();
        assert_eq!(gateway.wait_exit(PATIENCE).await, Some(0));
    }
    setup
}

async fn started_with(setup: &Setup, secret: &[&str]) -> CommandOutput {
    let flags = "gateway --listen 127.0.0.1:0 --upstream http://a:1 --principal anonymous \
                 --store file:data";
    let mut flags: Vec<_> = flags.split_whitespace().collect();
    flags.extend(secret.iter().flat_map(|file| ["--hash-secret-file", file]));
    run(setup.folder(), &flags).await
}

/// Every earlier key would be forgotten, and every retry run again.
#[tokio::test]
async fn a_store_is_not_opened_with_another_secret_than_it_began_with() {
    let setup = begun_with(&[]).await;
    let ended = started_with(&setup, &["one"]).await;
    ended.assert_stderr(&[1], &["data", ".hash-secret-check", "none if it began without"]);
    let setup = begun_with(&["one"]).await;
    for secret in [&["other"][..], &[]] {
        let ended = started_with(&setup, secret).await;
        ended.assert_stderr(&[1], &["data", ".hash-secret-check", "--hash-secret-file"]);
    }
}
