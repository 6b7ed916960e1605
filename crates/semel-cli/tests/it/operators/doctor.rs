use super::StoppedStore;
use crate::harness::{Setup, TestRequest, TestUpstream};

#[tokio::test]
async fn a_healthy_store_is_reported_with_what_was_checked() {
    let store = StoppedStore::with(&["k"]).await;
    let output = store.stdout(&["doctor"]).await;
    for word in ["opened file:data", "hash secret", "namespace", "cache", "records: 1", "clock"] {
        assert!(output.contains(word), "{word}: {output}");
    }
    assert!(output.ends_with("all is well\n"), "{output}");
    let json = store.json(&["doctor"]).await;
    assert_eq!(json[0]["worst"], "ok");
    assert_eq!(json[0]["store"], "file:data");
    assert!(json[0]["findings"].as_array().unwrap().len() > 4, "{json:?}");
}

#[tokio::test]
async fn a_finding_comes_with_its_fix() {
    let store = StoppedStore::with(&["k"]).await;
    std::fs::write(store.0.folder().join("data/foreign"), "x").unwrap();
    let ended = store.semel(&["doctor"]).await;
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    for word in ["BAD", "foreign", "fix: choose an empty folder", "fix every finding marked BAD"] {
        assert!(ended.stdout.contains(word), "{word}: {ended:#?}");
    }
}

#[tokio::test]
async fn a_missing_segment_is_named_with_its_fix() {
    let store = StoppedStore::with(&["k"]).await;
    let data = store.0.folder().join("data");
    std::fs::remove_file(data.join("00000001.log")).unwrap();
    let words = ["BAD", "00000001.log is missing", "fix: restore it from a backup"];
    for _ in 0..2 {
        let ended = store.semel(&["doctor"]).await;
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        words.iter().for_each(|word| assert!(ended.stdout.contains(word), "{word}: {ended:#?}"));
    }
    assert!(!data.join("00000001.log").exists(), "nothing takes its place");
}

#[tokio::test]
async fn a_segment_missing_under_a_gateway_is_named_too() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let gateway = setup.start().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    let store = StoppedStore(setup);
    assert!(store.stdout(&["doctor"]).await.contains("in use by another process"));
    std::fs::remove_file(store.0.folder().join("data/00000001.log")).unwrap();
    let ended = store.semel(&["doctor"]).await;
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.stdout.contains("00000001.log is missing"), "{ended:#?}");
    gateway.request(TestRequest::charge("new")).await.assert_problem(503, "store-unavailable");
}
