use super::StoppedStore;

const MADE_FROM: [&str; 4] = ["--principal", "anonymous", "--operation", "POST /orders/7"];

#[tokio::test]
async fn a_key_is_found_by_its_hash_by_a_part_of_it_and_by_what_it_was_made_from() {
    let store = StoppedStore::with(&["order-42", "order-43"]).await;
    let keys = store.json(&["keys", "list"]).await;
    let key = keys.iter().find(|key| key["id"] == "order-42").unwrap();
    let hash = key["key"].as_str().unwrap();
    let by_hash = store.stdout(&["keys", "get", hash]).await;
    for word in [hash, "completed", "POST /orders/7", "order-42", "(anonymous)", "ago)", "success"]
    {
        assert!(by_hash.contains(word), "{word}: {by_hash}");
    }
    let part = store.json(&["keys", "get", &hash[..8].to_uppercase()]).await;
    let made_from = [&["keys", "get", "order-42"], &MADE_FROM[..]].concat();
    assert_eq!(part, store.json(&made_from).await);
    assert_eq!(part[0]["key"], hash);
    assert_eq!(part[0]["attempts"], 1);
    assert!(part[0]["expires_at"].as_str().unwrap().ends_with('Z'), "{part:?}");
}

#[tokio::test]
async fn an_outcome_is_shown_only_when_it_is_asked_for() {
    let store = StoppedStore::with(&["k"]).await;
    let hash = store.only().await;
    let json = |words: &[&str]| format!("{words:?}");
    for words in [&["keys", "get", &hash][..], &["keys", "get", &hash, "--json"], &["keys", "list"]]
    {
        assert!(!store.stdout(words).await.contains("4242"), "{}", json(words));
    }
    assert!(store.stdout(&["keys", "get", &hash, "--show-outcome"]).await.contains("card 4242"));
    let whole = store.json(&["keys", "get", &hash, "--show-outcome"]).await;
    assert_eq!(whole[0]["outcome"]["body"], "card 4242");
}

#[tokio::test]
async fn a_key_that_is_not_there_is_a_failure_and_a_bad_name_is_bad_usage() {
    let store = StoppedStore::with(&["k"]).await;
    let absent = "0".repeat(64);
    store
        .semel(&["keys", "get", &absent])
        .await
        .assert_stderr(&[1], &["no record of key 00000000"]);
    store.semel(&["keys", "get", "00000000"]).await.assert_stderr(&[1], &["no key begins with"]);
    let missing = [&["keys", "get", "other"], &MADE_FROM[..]].concat();
    store.semel(&missing).await.assert_stderr(&[1], &["no record of key"]);
    for key in ["abc", "order-42", &"0".repeat(65)] {
        let ended = store.semel(&["keys", "get", key]).await;
        ended.assert_stderr(&[2], &["8 to 64 hex digits", "--operation"]);
    }
    let ended = store.semel(&["keys", "get", "k", "--operation", "POST /orders/7"]).await;
    ended.assert_stderr(&[2], &["--principal"]);
}
