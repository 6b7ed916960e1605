//! A server that is silent, slow, or refuses connections.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use semel_core::{Engine, Fingerprint, Policy, RunError, Scope};
use semel_faults::Fault;

use super::subject::{
    BOUND, CALL, StoreUnderTest, claim, complete, granted, unavailable, until_answered,
};

/// One wait for a connection, one for the reply, and time for a busy machine.
const IN_TIME: Duration = Duration::from_secs(10);

pub(crate) async fn a_black_hole_is_unavailable_in_time_and_the_store_recovers(
    subject: StoreUnderTest,
) {
    let store = subject.store(2).await;
    let request = claim();
    let lease = granted(&request, store.claim(&request).await.unwrap());
    subject.proxy.set(Fault::BlackHole);
    let started = Instant::now();
    let requests: Vec<_> = (0..50).map(|_| claim()).collect();
    for answer in join_all(requests.iter().map(|request| store.claim(request))).await {
        unavailable(answer);
    }
    unavailable(store.get(&request.key).await);
    assert!(started.elapsed() < IN_TIME, "{:?}", started.elapsed());

    subject.proxy.set(Fault::None);
    let done = complete(&lease);
    until_answered(|| store.complete(&done)).await;
    for request in &requests {
        granted(request, until_answered(|| store.claim(request)).await);
    }
}

/// The request took effect although its reply was lost: the retry finds its own claim.
pub(crate) async fn requests_without_replies_take_effect(subject: StoreUnderTest) {
    let (store, direct, request) = (subject.store(1).await, subject.direct().await, claim());
    until_answered(|| store.get(&request.key)).await;
    subject.proxy.set(Fault::OneWay);
    let started = Instant::now();
    unavailable(store.claim(&request).await);
    assert!(started.elapsed() < IN_TIME, "{:?}", started.elapsed());
    let seen = direct.get(&request.key).await.unwrap().unwrap().record;
    assert_eq!((seen.token, seen.nonce), (1, Some(request.nonce)));
    subject.proxy.set(Fault::None);
    let lease = granted(&request, until_answered(|| store.claim(&request)).await);
    assert_eq!((lease.owner.token, lease.attempt), (1, 1));
}

/// Slower than usual and faster than the call timeout: no caller gets an error.
pub(crate) async fn a_slow_server_answers_every_call(subject: StoreUnderTest) {
    let store = subject.store(2).await;
    subject.proxy.set(Fault::Slow(CALL / 20));
    let requests: Vec<_> = (0..40).map(|_| claim()).collect();
    let claims = join_all(requests.iter().map(|request| store.claim(request))).await;
    for (request, answer) in requests.iter().zip(claims) {
        let lease = granted(request, answer.unwrap());
        assert_eq!(lease.owner.token, 1);
    }
    let counts = subject.proxy.counts();
    assert_eq!((counts.cut, counts.lost_replies), (0, 0));
}

pub(crate) async fn a_refusing_server_is_unavailable_at_once(subject: StoreUnderTest) {
    let store = subject.store(1).await;
    subject.proxy.set(Fault::Refuse);
    subject.proxy.cut();
    let deadline = Instant::now() + BOUND;
    while subject.proxy.counts().open() > 0 {
        assert!(Instant::now() < deadline, "the connections are not cut");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while subject.proxy.counts().refused == 0 {
        assert!(Instant::now() < deadline, "the store did not try to connect again");
        let started = Instant::now();
        let answer = store.claim(&claim()).await;
        assert!(answer.is_err() && started.elapsed() < IN_TIME);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    subject.proxy.set(Fault::None);
    let request = claim();
    granted(&request, until_answered(|| store.claim(&request)).await);
}

/// As behind a firewall that lost its state. The call that finds the first silent connection replaces all of them, so
/// that no other call meets one.
pub(crate) async fn connections_that_fall_silent_together_are_replaced_together(
    subject: StoreUnderTest,
) {
    const CONNECTIONS: usize = 6;
    // A busy machine answers within this time; a call that takes longer met a silent connection.
    let subject = subject.call_timeout(CALL * 5);
    let store = subject.store(CONNECTIONS).await;
    subject.proxy.silence();
    unavailable(store.claim(&claim()).await);
    let first = claim();
    granted(&first, until_answered(|| store.claim(&first)).await);
    for call in 0..4 * CONNECTIONS {
        let request = claim();
        let answer = store.claim(&request).await;
        granted(&request, answer.unwrap_or_else(|error| panic!("call {call}: {error}")));
    }
}

/// Runs a new key.
async fn run(engine: &Engine) -> Result<u32, RunError> {
    let scope = Scope::new("tests", format!("{:016x}", rand::random::<u64>()), "run");
    let work = |_| async { Ok::<_, std::io::Error>(1u32) };
    let answer = engine.run(scope.key("new").unwrap(), Fingerprint::of_bytes(b"x"), work).await?;
    Ok(answer.value)
}

/// The policy's wait is for the owner of a key. A store that is down is waited for one second, and not at all once
/// that is known.
pub(crate) async fn an_engine_does_not_wait_for_a_store_that_is_down(subject: StoreUnderTest) {
    let store = subject.store(2).await;
    let policy = Policy::api().wait(Duration::from_secs(3600));
    let engine = Engine::builder().store(store).policy(policy).build().unwrap();
    for fault in [Fault::Refuse, Fault::BlackHole] {
        run(&engine).await.unwrap();
        subject.proxy.set(fault);
        if fault == Fault::Refuse {
            subject.proxy.cut();
        }
        let (deadline, mut failed) = (Instant::now() + BOUND, 0);
        loop {
            let started = Instant::now();
            match run(&engine).await {
                Err(RunError::Store(_)) => failed += 1,
                // The connection may not be cut yet.
                Ok(_) if failed == 0 => {}
                other => panic!("{other:?}"),
            }
            assert!(started.elapsed() < IN_TIME, "{:?}", started.elapsed());
            if failed > 0 && started.elapsed() < Policy::STORE_TIMEOUT / 2 {
                break;
            }
            assert!(Instant::now() < deadline, "every request waits for a store that is down");
        }
        subject.proxy.set(Fault::None);
        let deadline = Instant::now() + BOUND;
        while let Err(error) = run(&engine).await {
            assert!(Instant::now() < deadline, "{error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
