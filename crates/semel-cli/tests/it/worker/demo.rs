//! `semel worker --demo` shows what it says, and ends.

use std::fs;

use crate::harness::{WorkerSetup, command, run_command};

#[tokio::test]
async fn the_demo_shows_each_outcome_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    // A semel.toml in this folder is for another service than the demo's.
    fs::write(folder.path().join("semel.toml"), "[worker]\nsource = 'nats://127.0.0.1:1/a/b'\n")
        .unwrap();
    let mut command = command(folder.path());
    command.args(["worker", "--demo"]).env("TMPDIR", folder.path());
    let ended = run_command(command).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for words in [
        "1. order-1 is delivered.",
        "->  200",
        "2. order-1 is delivered again",
        "No request: its outcome is recorded already.",
        "3. order-2 is delivered.",
        "->  503",
        "4. order-3 is delivered.",
        "->  422",
        "reason failed, class http_422, attempts 1",
        "4 messages, 4 requests: 2 events handled once, 1 duplicate, 1 retry, 1 dead letter.",
    ] {
        assert!(ended.stdout.contains(words), "{words:?} is missing: {}", ended.stdout);
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only semel.toml is left: {left:?}");
}

#[tokio::test]
async fn the_demo_refuses_settings_that_it_brings_itself() {
    let setup =
        WorkerSetup::bare().flag("--handler", "http://127.0.0.1:1").variable("SEMEL_DEMO", "true");
    let ended = setup.run().await;
    ended.assert_stderr(&[2], &["--handler: is set, but the demo brings its own"]);
}
