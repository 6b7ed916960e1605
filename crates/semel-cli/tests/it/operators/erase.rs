use super::Left;
use crate::harness::Ask;

#[tokio::test]
async fn an_erased_key_holds_nothing_and_still_stops_duplicates() {
    let left = Left::with(&["k"]).await;
    let hash = left.only().await;
    let ended = left.semel(&["keys", "erase", &hash[..8], "--reason", "request 42"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains(&hash) && ended.stdout.contains("request 42"), "{ended:#?}");
    for word in ["erase", &hash[..8], "request 42"] {
        assert!(ended.stderr.contains(word), "{word}: {ended:#?}");
    }
    let got = left.json(&["keys", "get", &hash, "--show-outcome"]).await;
    assert_eq!((&got[0]["state"], &got[0]["id"]), (&"erased".into(), &serde_json::Value::Null));
    assert!(!got[0].to_string().contains("4242"), "{got:?}");
    left.0.start().await.ask(Ask::charge("k")).await.assert_problem(410, "erased");
}

#[tokio::test]
async fn what_is_not_there_is_not_erased() {
    let left = Left::with(&["k"]).await;
    let ended = left.semel(&["keys", "erase", &"0".repeat(64), "--reason", "x"]).await;
    ended.assert_says(&[1], &["no record of key", "nothing was changed"]);
    let ended = left.semel(&["keys", "erase", "00000000", "--reason", "x"]).await;
    ended.assert_says(&[1], &["no key begins with"]);
}
