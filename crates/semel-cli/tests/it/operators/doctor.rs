use super::Left;

#[tokio::test]
async fn a_store_that_is_well_is_told_so_with_what_was_looked_at() {
    let left = Left::with(&["k"]).await;
    let told = left.told(&["doctor"]).await;
    for word in ["opened file:data", "hash secret", "namespace", "cache", "records: 1", "clock"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(told.ends_with("all is well\n"), "{told}");
    let json = left.json(&["doctor"]).await;
    assert_eq!(json[0]["worst"], "ok");
    assert_eq!(json[0]["store"], "file:data");
    assert!(json[0]["findings"].as_array().unwrap().len() > 4, "{json:?}");
}

#[tokio::test]
async fn what_is_wrong_comes_with_its_fix() {
    let left = Left::with(&["k"]).await;
    std::fs::write(left.0.folder().join("data/foreign"), "x").unwrap();
    let ended = left.semel(&["doctor"]).await;
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    for word in ["BAD", "foreign", "fix: choose an empty folder", "mend what is BAD"] {
        assert!(ended.stdout.contains(word), "{word}: {ended:#?}");
    }
}
