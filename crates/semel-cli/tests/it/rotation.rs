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

/// Asks with new keys and old ones, and counts what was not answered as it should be.
async fn load(gateway: Arc<GatewayProcess>, task: u32, end: Arc<AtomicBool>) -> (u32, Vec<u16>) {
    let (mut asked, mut bad) = (0, Vec::new());
    while !end.load(SeqCst) {
        let key = format!("task-{task}-{asked}");
        let first = gateway.request(TestRequest::charge(&key)).await;
        let oldest = gateway.request(TestRequest::charge(&format!("task-{task}-0"))).await;
        let again = gateway.request(TestRequest::charge(&key)).await;
        bad.extend([&first, &oldest, &again].iter().map(|it| it.status).filter(|it| *it != 200));
        assert_eq!(first.body, again.body, "one outcome");
        asked += 1;
    }
    (asked, bad)
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
    // By itself, when the file has changed.
    write_keys(&file, &[&old, &new]);
    logged(&gateway, "sealing with key old; these open: old, new").await;
    // At once, when it is told to.
    write_keys(&file, &[&new, &old]);
    gateway.sighup();
    logged(&gateway, "sealing with key new; these open: new, old").await;
    // A file that is no good changes nothing.
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
    for (asked, bad) in tasks.join_all().await {
        assert!(asked > 0 && bad.is_empty(), "{asked} asked, and {bad:?}");
        all += asked;
    }
    assert_eq!(upstream.received().len(), all as usize, "nothing ran twice");
    assert!(!gateway.stderr().contains("nonsense") && !gateway.stderr().contains(&new[6..]));
    // What the old key has sealed is refused once it is gone, and the log says so before.
    write_keys(&file, &[&new]);
    gateway.sighup();
    logged(&gateway, "records sealed with old cannot be opened any more").await;
    let runs = upstream.received().len();
    assert_eq!(gateway.request(TestRequest::charge("task-0-0")).await.status, 503);
    assert_eq!(upstream.received().len(), runs, "it is not run again");
}
