use super::StoppedStore;
use crate::harness::TestRequest;

#[tokio::test]
async fn an_erased_key_holds_nothing_and_still_stops_duplicates() {
    let store = StoppedStore::with(&["k"]).await;
    let hash = store.only().await;
    let ended = store.semel(&["keys", "erase", &hash[..8], "--reason", "request 42"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains(&hash) && ended.stdout.contains("request 42"), "{ended:#?}");
    for word in ["erase", &hash[..8], "request 42"] {
        assert!(ended.stderr.contains(word), "{word}: {ended:#?}");
    }
    let got = store.json(&["keys", "get", &hash, "--show-outcome"]).await;
    assert_eq!((&got[0]["state"], &got[0]["id"]), (&"erased".into(), &serde_json::Value::Null));
    assert!(!got[0].to_string().contains("4242"), "{got:?}");
    store.0.start().await.request(TestRequest::charge("k")).await.assert_problem(410, "erased");
}

#[tokio::test]
async fn an_absent_key_is_not_erased() {
    let store = StoppedStore::with(&["k"]).await;
    let ended = store.semel(&["keys", "erase", &"0".repeat(64), "--reason", "x"]).await;
    ended.assert_stderr(&[1], &["no record of key", "nothing was changed"]);
    let ended = store.semel(&["keys", "erase", "00000000", "--reason", "x"]).await;
    ended.assert_stderr(&[1], &["no key begins with"]);
}
