//! A Redis that loses everything, through FLUSHALL or because nothing was written to disk.

use semel_core::{
    AbandonRequest, Completion, Effect, Release, ReleaseRequest, RenewRequest, Renewal,
};
use semel_servers::{REDIS, Running};

use super::subject::{CALL, claim, complete, granted, open_redis, until_answered};

async fn owners_steps_are_refused(wipe: impl FnOnce(&mut Running)) {
    let mut server = Running::start(&REDIS).unwrap();
    let store = open_redis(server.url().to_owned(), "wiped".to_owned(), 1, CALL).await.unwrap();
    let (one, other) = (claim(), claim());
    let lease = granted(&one, store.claim(&one).await.unwrap());
    let rest = granted(&other, store.claim(&other).await.unwrap()).owner;
    wipe(&mut server);

    let done = complete(&lease);
    assert_eq!(until_answered(|| store.complete(&done)).await, Completion::Missing);
    let renewal = RenewRequest::new(rest, std::time::Duration::from_secs(60));
    assert_eq!(store.renew(&renewal).await.unwrap(), Renewal::Lost);
    let release = ReleaseRequest { owner: rest, effect: Effect::None };
    assert_eq!(store.release(&release).await.unwrap(), Release::Missing);
    let backoff = std::time::Duration::ZERO;
    store.abandon(&AbandonRequest { owner: rest, backoff }).await.unwrap();

    // The refused steps recreated nothing: the next claim is the first.
    for request in [one, other] {
        assert_eq!(store.get(&request.key).await.unwrap(), None);
        assert_eq!(granted(&request, store.claim(&request).await.unwrap()).owner.token, 1);
    }
}

fn run(promise: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(promise);
}

#[test]
fn flushed_records_are_missing_and_not_recreated() {
    run(owners_steps_are_refused(|server| drop(server.ask(&["FLUSHALL"]).unwrap())));
}

#[test]
fn records_lost_by_a_killed_redis_are_missing_and_not_recreated() {
    run(owners_steps_are_refused(|server| {
        server.kill().unwrap();
        server.restart().unwrap();
    }));
}
