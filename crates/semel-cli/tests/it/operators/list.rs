use super::StoppedStore;

#[tokio::test]
async fn keys_are_listed_by_their_hash_in_pages() {
    let names: Vec<String> = (0..7).map(|number| format!("k{number}")).collect();
    let store = StoppedStore::with(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let all = store.json(&["keys", "list"]).await;
    let hashes: Vec<_> = all.iter().map(|key| key["key"].as_str().unwrap()).collect();
    assert!(hashes.len() == 7 && hashes.is_sorted(), "{hashes:?}");
    let page = store.semel(&["keys", "list", "--limit", "3", "--json"]).await;
    assert_eq!(page.stdout.lines().count(), 3);
    assert!(page.stderr.contains(&format!("--after {}", hashes[2])), "{page:#?}");
    let rest = store.json(&["keys", "list", "--after", hashes[2]]).await;
    assert_eq!(rest, all[3..]);
    store.semel(&["keys", "list", "--after", "abc"]).await.assert_stderr(&[2], &["64 hex digits"]);
}

#[tokio::test]
async fn a_table_is_for_people() {
    let store = StoppedStore::with(&["order-42"]).await;
    let hash = store.only().await;
    let table = store.stdout(&["keys", "list"]).await;
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    for word in ["KEY", "STATE", "CREATED", "EXPIRES", "ID"] {
        assert!(lines[0].contains(word), "{table}");
    }
    for word in [&hash[..8], "completed", "ago)", "in 23h", "default", "POST /orders/7", "order-42"]
    {
        assert!(lines[1].contains(word), "{word}: {table}");
    }
    assert!(!table.contains(&hash), "{table}");
}

#[tokio::test]
async fn keys_are_listed_by_state_and_namespace() {
    let store = StoppedStore::with(&["k"]).await;
    let count = async |words: &[&str]| store.json(&[&["keys", "list"], words].concat()).await.len();
    assert_eq!(count(&["--state", "completed"]).await, 1);
    assert_eq!(count(&["--state", "unknown"]).await, 0);
    assert_eq!(count(&["--namespace", "default"]).await, 1);
    assert_eq!(count(&["--namespace", "other"]).await, 0);
    assert_eq!(count(&["--namespace", "other", "--all-namespaces"]).await, 1);
    let ended = store.semel(&["keys", "list", "--state", "done"]).await;
    ended.assert_stderr(&[2], &["in-progress", "completed", "unknown"]);
}
