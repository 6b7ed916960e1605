use super::StoppedStore;
use crate::harness::{Setup, TestUpstream, until};

#[tokio::test]
async fn expired_records_are_deleted_and_counted() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let setup =
        setup.flag("--retention", "1s").flag("--failure-retention", "1s").flag("--lease", "1s");
    let store = StoppedStore::by(setup, &["a", "b"]).await;
    // Opening the folder also drops expired records, so the number deleted here varies.
    until("all is gone", async || {
        let output = store.stdout(&["purge"]).await;
        assert!(output.starts_with("deleted "), "{output}");
        store.json(&["keys", "list"]).await.is_empty()
    })
    .await;
    let purged = store.json(&["purge", "--limit", "10"]).await;
    assert_eq!(purged[0]["held"], 0);
    assert_eq!(purged[0]["deleted"], 0);
    store.semel(&["purge", "--limit", "0"]).await.assert_stderr(&[2], &["--limit", "from 1"]);
}
