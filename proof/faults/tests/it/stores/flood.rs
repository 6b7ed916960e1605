//! Many concurrent callers on few connections, some of which break.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use semel_core::{Claim, ClaimRequest, Completion, Store};
use semel_faults::Fault;
use tokio::time::sleep;

use super::subject::{
    CALL, StoreUnderTest, claim, complete, granted, outcome, rival, unavailable, until_answered,
};

const CALLERS: usize = 300;

/// Every answered caller gets the reply to its own request, and every other caller gets it when it retries.
pub(crate) async fn a_batch_that_is_cut_leaves_every_caller_its_own_answer(
    subject: StoreUnderTest,
) {
    let store = subject.store(2).await;
    let requests: Vec<_> = (0..CALLERS).map(|_| claim()).collect();
    let (mut answered, mut lost) = (0, 0);
    for round in requests.chunks(CALLERS / 10) {
        // The reply of at least one request per round is lost, with those of its batch; the cut may hit others too.
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
                    answered += 1;
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
    assert_eq!(answered + lost, CALLERS);
    assert!(lost >= 10 || !subject.reports_lost_claims(), "{lost} callers got no reply");
    let cut = subject.proxy.counts().cut;
    assert!(cut >= 10, "{cut} connections were cut");
    for request in &requests {
        let lease = granted(request, until_answered(|| store.claim(request)).await);
        assert_eq!((lease.owner.token, lease.attempt), (1, 1));
    }
}

pub(crate) async fn more_callers_than_connections_are_all_answered(subject: StoreUnderTest) {
    let subject = subject.patient();
    let store = subject.store(1).await;
    join_all((0..CALLERS).map(|_| claim_complete_replay(store.clone()))).await;
}

/// Claims, reads, completes and replays a key: each reply is about that key.
async fn claim_complete_replay(store: Arc<dyn Store>) {
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

/// All callers wait for one timeout together, not one after the other.
pub(crate) async fn callers_of_a_silent_server_do_not_queue_for_ever(subject: StoreUnderTest) {
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
