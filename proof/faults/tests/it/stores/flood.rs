//! Many callers at once, on few connections, some of which break.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use semel_core::{Claim, ClaimRequest, Completion, Store};
use semel_faults::Fault;
use tokio::time::sleep;

use super::subject::{
    CALL, Subject, claim, complete, granted, outcome, rival, unavailable, until_answered,
};

const CALLERS: usize = 300;

/// Whoever was answered got its own answer, and whoever was not gets it when it asks again.
pub(crate) async fn a_batch_that_is_cut_leaves_every_caller_its_own_answer(subject: Subject) {
    let store = subject.store(2).await;
    let requests: Vec<_> = (0..CALLERS).map(|_| claim()).collect();
    let (mut told, mut lost) = (0, 0);
    for round in requests.chunks(CALLERS / 10) {
        // Of each round at least one, and whoever shares its batch; the cut may hit others too.
        subject.lose_reply_about(&round[0].key);
        let cut = async {
            sleep(Duration::from_millis(1)).await;
            subject.proxy.cut();
        };
        let (answers, ()) = tokio::join!(join_all(round.iter().map(|it| store.claim(it))), cut);
        for (request, answer) in round.iter().zip(answers) {
            match answer {
                Ok(answer) => {
                    granted(request, answer);
                    told += 1;
                }
                Err(error) => {
                    unavailable::<()>(Err(error));
                    lost += 1;
                }
            }
        }
        let next = claim();
        until_answered(|| store.claim(&next)).await;
    }
    assert_eq!(told + lost, CALLERS);
    assert!(lost >= 10 || !subject.tells_lost_claims(), "{lost} callers were not told");
    let cut = subject.proxy.counts().cut;
    assert!(cut >= 10, "{cut} connections were cut");
    for request in &requests {
        let lease = granted(request, until_answered(|| store.claim(request)).await);
        assert_eq!((lease.owner.token, lease.attempt), (1, 1));
    }
}

pub(crate) async fn more_callers_than_connections_are_all_answered(subject: Subject) {
    let subject = subject.patient();
    let store = subject.store(1).await;
    join_all((0..CALLERS).map(|_| whole_life(store.clone()))).await;
}

/// Claim, look, record, replay: each answer is about the key that was asked for.
async fn whole_life(store: Arc<dyn Store>) {
    let request: ClaimRequest = claim();
    assert_eq!(store.get(&request.key).await.unwrap(), None);
    let lease = granted(&request, store.claim(&request).await.unwrap());
    assert_eq!(store.get(&request.key).await.unwrap().unwrap().record.key, request.key);
    assert_eq!(store.complete(&complete(&lease)).await.unwrap(), Completion::Recorded);
    match store.claim(&rival(&request)).await.unwrap() {
        Claim::Replay(replay) => assert_eq!(replay.outcome, outcome(&request.key)),
        other => panic!("expected the outcome, got {other:?}"),
    }
}

/// They wait for one silence together, not one after the other.
pub(crate) async fn callers_of_a_silent_server_do_not_queue_for_ever(subject: Subject) {
    let store = subject.store(1).await;
    subject.proxy.set(Fault::BlackHole);
    let started = Instant::now();
    let requests: Vec<_> = (0..2000).map(|_| claim()).collect();
    for answer in join_all(requests.iter().map(|request| store.claim(request))).await {
        unavailable(answer);
    }
    assert!(started.elapsed() < CALL * 15, "{:?}", started.elapsed());
    subject.proxy.set(Fault::None);
    let request = claim();
    granted(&request, until_answered(|| store.claim(&request)).await);
}
