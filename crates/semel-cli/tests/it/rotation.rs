//! Seal keys are rotated while the gateway runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use crate::{
    harness::{GatewayProcess, Setup, TestRequest, TestUpstream, until},
    operators::seals::{fresh, write_keys},
};

/// Waits for a line of the log.
async fn logged(gateway: &GatewayProcess, words: &str) {
    until(words, async || gateway.stderr().contains(words)).await;
}

/// Sends requests with new keys and old ones, and collects every status but 200.
async fn load(gateway: Arc<GatewayProcess>, task: u32, end: Arc<AtomicBool>) -> (u32, Vec<u16>) {
    let (mut sent, mut bad) = (0, Vec::new());
    while !end.load(SeqCst) {
        let key = format!("task-{task}-{sent}");
        let first = gateway.request(TestRequest::charge(&key)).await;
        let oldest = gateway.request(TestRequest::charge(&format!("task-{task}-0"))).await;
        let again = gateway.request(TestRequest::charge(&key)).await;
        bad.extend([&first, &oldest, &again].iter().map(|it| it.status).filter(|it| *it != 200));
        assert_eq!(first.body, again.body, "one outcome");
        sent += 1;
    }
    (sent, bad)
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_under_load_and_no_replay_fails() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).embedded().flag("--seal-keys", "keys");
    let file = setup.folder().join("keys");
    let old = fresh(setup.folder(), "old").await;
    write_keys(&file, &[&old]);
    let gateway = Arc::new(setup.start().await);
    logged(&gateway, "sealing with key old; these open: old").await;
    let (end, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for task in 0..4 {
        tasks.spawn(load(gateway.clone(), task, end.clone()));
    }
    let new = fresh(setup.folder(), "new").await;
    // The gateway notices that the file has changed.
    write_keys(&file, &[&old, &new]);
    logged(&gateway, "sealing with key old; these open: old, new").await;
    // SIGHUP makes it read the file at once.
    write_keys(&file, &[&new, &old]);
    gateway.sighup();
    logged(&gateway, "sealing with key new; these open: new, old").await;
    // A bad file changes nothing.
    write_keys(&file, &["new = nonsense"]);
    gateway.sighup();
    logged(&gateway, "seal keys are not replaced, new still seals").await;
    let other = fresh(setup.folder(), "new").await;
    write_keys(&file, &[&other]);
    gateway.sighup();
    logged(&gateway, "new is another key than before").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    end.store(true, SeqCst);
    let mut all = 0;
    for (sent, bad) in tasks.join_all().await {
        assert!(sent > 0 && bad.is_empty(), "{sent} sent, and {bad:?}");
        all += sent;
    }
    assert_eq!(upstream.received().len(), all as usize, "nothing ran twice");
    assert!(!gateway.stderr().contains("nonsense") && !gateway.stderr().contains(&new[6..]));
    // Records of the old key are refused once it is removed, and the log warns of that.
    write_keys(&file, &[&new]);
    gateway.sighup();
    logged(&gateway, "records sealed with old cannot be opened any more").await;
    let runs = upstream.received().len();
    assert_eq!(gateway.request(TestRequest::charge("task-0-0")).await.status, 503);
    assert_eq!(upstream.received().len(), runs, "it is not run again");
}
