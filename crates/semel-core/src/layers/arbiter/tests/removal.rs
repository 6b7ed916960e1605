//! Erase and forget: the record and its copy are removed, whatever fails in between.

use std::{
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use super::harness::{
    ArbiterTest, DOWN, FAILS_ONE_REMOVAL, FULL, UP, arbiter_test, completion, key, request,
};
use crate::{
    Claim, Erasure, ErrorKind, Forgetting, Replica, ReplicaCache, State, Store,
    layers::arbiter::replica,
};

#[tokio::test]
async fn an_erased_or_forgotten_key_is_gone_from_both_stores() {
    let test = arbiter_test();
    test.complete(1).await;
    test.complete(2).await;
    assert_eq!(test.store.erase(&key(1)).await.unwrap(), Erasure::Erased);
    assert_eq!(test.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
    assert_eq!(test.store.forget(&key(2)).await.unwrap(), Forgetting::Forgotten);
    test.granted(2).await;
    assert_eq!(test.store.forget(&key(3)).await.unwrap(), Forgetting::Missing);
}

#[tokio::test]
async fn a_half_done_erasure_says_so_and_is_finished_by_the_next_one() {
    let test = arbiter_test();
    test.complete(1).await;
    test.set_front(DOWN);
    let half = test.store.erase(&key(1)).await.unwrap_err();
    assert_eq!(half.kind(), ErrorKind::Unavailable);
    for word in ["erased in memory", "faulty has not confirmed", "repeat"] {
        assert!(half.to_string().contains(word), "{half}");
    }
    test.set_front(UP);
    test.replay(1).await;
    assert_eq!(test.store.erase(&key(1)).await.unwrap(), Erasure::Erased);
    assert_eq!(test.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
}

#[tokio::test]
async fn a_half_done_forget_is_finished_when_the_authority_has_no_record_any_more() {
    let test = arbiter_test();
    test.complete(1).await;
    test.set_front(DOWN);
    let half = test.store.forget(&key(1)).await.unwrap_err();
    assert!(half.to_string().contains("forgotten in memory"), "{half}");
    let again = test.store.forget(&key(1)).await.unwrap_err();
    assert!(again.to_string().contains("not there any more in memory"), "{again}");
    test.set_front(UP);
    assert_eq!(test.store.forget(&key(1)).await.unwrap(), Forgetting::Forgotten);
    assert_eq!(test.store.forget(&key(1)).await.unwrap(), Forgetting::Missing);
    test.granted(1).await;
}

/// The record changed while the copy could still be replayed.
#[tokio::test]
async fn a_copy_that_was_removed_late_is_reported_as_an_error() {
    let test = arbiter_test();
    test.complete(1).await;
    test.complete(2).await;
    test.set_front(FAILS_ONE_REMOVAL);
    let late = test.store.erase(&key(1)).await.unwrap_err();
    test.set_front(FAILS_ONE_REMOVAL);
    let other = test.store.forget(&key(2)).await.unwrap_err();
    for late in [late, other] {
        assert_eq!(late.kind(), ErrorKind::Unavailable, "{late}");
        assert!(late.to_string().contains("late: faulty may have replayed it"), "{late}");
    }
    assert_eq!(test.store.erase(&key(1)).await.unwrap(), Erasure::Erased);
    assert_eq!(test.store.forget(&key(2)).await.unwrap(), Forgetting::Missing);
    test.granted(2).await;
}

/// Whatever the front's error is: the record is gone, and only *unavailable* says that the step may have happened.
#[tokio::test]
async fn a_half_done_removal_is_always_reported_as_unavailable() {
    let test = arbiter_test();
    test.complete(1).await;
    test.complete(2).await;
    test.set_front(FULL);
    let erasing = test.store.erase(&key(1)).await.unwrap_err();
    let forgetting = test.store.forget(&key(2)).await.unwrap_err();
    assert_eq!([erasing.kind(), forgetting.kind()], [ErrorKind::Unavailable; 2]);
}

/// One node removes the copy, the other the record: the key was forgotten once.
#[tokio::test]
async fn if_two_nodes_forget_a_key_at_once_one_gets_missing() {
    let test = arbiter_test();
    test.complete(1).await;
    test.authority.is_forgotten_first.store(true, SeqCst);
    assert_eq!(test.store.forget(&key(1)).await.unwrap(), Forgetting::Missing);
    assert!(!test.is_copied(1).await);
}

/// A copy does not count as forgotten either if another node deleted its record.
#[tokio::test]
async fn a_copy_written_while_a_key_is_forgotten_does_not_count_as_forgotten() {
    let test = arbiter_test();
    let copy = test.slow_read(1).await;
    assert_eq!(test.store.forget(&key(1)).await.unwrap(), Forgetting::Forgotten);
    test.clock.advance(Replica::MARK);
    *test.authority.write_before_step.lock() = Some(copy);
    assert_eq!(test.store.forget(&key(1)).await.unwrap(), Forgetting::Missing);
    assert!(!test.is_copied(1).await);
}

#[tokio::test]
async fn a_copy_stays_if_the_authority_does_not_reply() {
    let test = arbiter_test();
    test.complete(1).await;
    test.set_authority_down(true);
    test.store.erase(&key(1)).await.unwrap_err();
    test.store.forget(&key(1)).await.unwrap_err();
    test.replay(1).await;
}

/// From the moment at which the key can run again, the forgotten outcome is not replayed.
#[tokio::test]
async fn a_copy_is_removed_before_its_record_is_forgotten() {
    let test = arbiter_test();
    test.complete(1).await;
    test.store.forget(&key(1)).await.unwrap();
    assert!(test.authority.steps.lock().contains(&("get", true)));
    assert!(test.authority.steps.lock().contains(&("forget", false)));
}

#[tokio::test]
async fn a_copy_is_removed_before_its_record_is_erased() {
    let test = arbiter_test();
    test.complete(1).await;
    test.store.erase(&key(1)).await.unwrap();
    assert!(test.authority.steps.lock().contains(&("erase", false)));
}

#[tokio::test]
async fn a_key_that_may_not_be_forgotten_is_unchanged() {
    let test = arbiter_test();
    test.granted(1).await;
    test.set_front(DOWN);
    let refused = test.store.forget(&key(1)).await.unwrap();
    assert_eq!(refused, Forgetting::Refused(State::InProgress));
}

#[tokio::test]
async fn a_slow_node_does_not_put_back_a_removed_copy() {
    let test = arbiter_test();
    let called_at = Instant::now();
    let read = test.slow_read(1).await;
    test.store.erase(&key(1)).await.unwrap();
    test.front.put(std::slice::from_ref(&read), called_at).await;
    assert_eq!(test.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
    // Not even when the mark has ended: by then the put is too late.
    test.clock.advance(Replica::MARK);
    let long_ago = called_at.checked_sub(Replica::LATEST + Duration::from_secs(1)).unwrap();
    test.front.put(&[read], long_ago).await;
    assert_eq!(test.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
}

impl ArbiterTest {
    /// The copy that a node would write which called the authority and was then suspended.
    async fn slow_read(&self, byte: u8) -> Replica {
        let lease = self.granted(byte).await;
        self.authority.complete(&completion(&lease, "done")).await.unwrap();
        let request = request(byte, "a");
        match self.authority.claim(&request).await.unwrap() {
            Claim::Replay(replay) => replica::ReplicaSource::replayed(&request, &replay),
            claim => panic!("{claim:?}"),
        }
    }
}
