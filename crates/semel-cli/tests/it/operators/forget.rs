use super::StoppedStore;
use crate::harness::TestRequest;

#[tokio::test]
async fn a_forgotten_key_runs_again() {
    let store = StoppedStore::with(&["k"]).await;
    let hash = store.only().await;
    // By the digits that the list shows.
    let ended = store.semel(&["keys", "forget", &hash[..8], "--reason", "INC-7"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains(&hash) && ended.stdout.contains("INC-7"), "{ended:#?}");
    // The log has a line with the reason.
    for word in ["forget", &hash[..8], "INC-7"] {
        assert!(ended.stderr.contains(word), "{word}: {ended:#?}");
    }
    assert!(store.json(&["keys", "list"]).await.is_empty());
    let again = store.semel(&["keys", "forget", &hash, "--reason", "INC-7"]).await;
    again.assert_stderr(&[1], &["no record of key", "nothing was changed"]);
}

/// The command needs at least eight digits of the key, and a reason.
#[tokio::test]
async fn a_key_is_forgotten_only_by_its_name_and_with_a_reason() {
    let store = StoppedStore::with(&["k"]).await;
    let hash = store.only().await;
    store.semel(&["keys", "forget", &hash]).await.assert_stderr(&[2], &["--reason"]);
    let ended = store.semel(&["keys", "forget", &hash, "--reason", " "]).await;
    ended.assert_stderr(&[2], &["--reason is empty"]);
    let ended = store.semel(&["keys", "forget", &hash[..7], "--reason", "x"]).await;
    ended.assert_stderr(&[2], &["8 to 64 hex digits"]);
    store.semel(&["keys", "forget", "--reason", "x"]).await.assert_stderr(&[2], &["KEY"]);
    assert_eq!(store.only().await, hash);
}

#[tokio::test]
async fn an_unknown_key_is_not_forgotten() {
    let upstream = crate::harness::TestUpstream::gated().await;
    let setup = crate::harness::Setup::to(&upstream).embedded().flag("--on-lost-owner", "hold");
    let gateway = setup.start().await;
    let _wire = gateway.send(TestRequest::charge("k")).await;
    crate::harness::until("it runs", async || upstream.count() == 1).await;
    gateway.sigkill().await;
    let store = StoppedStore(setup);
    let hash = store.only().await;
    let ended = store.semel(&["keys", "forget", &hash, "--reason", "x"]).await;
    ended.assert_stderr(&[1], &["nothing was changed", "semel keys resolve"]);
    assert!(store.stdout(&["keys", "get", &hash]).await.contains("operator"));
}
