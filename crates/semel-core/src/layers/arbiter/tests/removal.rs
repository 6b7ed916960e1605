//! What is erased or forgotten is gone from both, however far somebody came with it.

use std::{
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use super::harness::{BLINKS, DOWN, FULL, Scene, UP, completion, key, request, scene};
use crate::{
    Claim, Erasure, ErrorKind, Forgetting, Replica, ReplicaCache, State, Store,
    layers::arbiter::replica,
};

#[tokio::test]
async fn what_an_operator_erases_or_forgets_is_gone_from_both() {
    let scene = scene();
    scene.complete(1).await;
    scene.complete(2).await;
    assert_eq!(scene.store.erase(&key(1)).await.unwrap(), Erasure::Erased);
    assert_eq!(scene.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
    assert_eq!(scene.store.forget(&key(2)).await.unwrap(), Forgetting::Forgotten);
    scene.granted(2).await;
    assert_eq!(scene.store.forget(&key(3)).await.unwrap(), Forgetting::Missing);
}

#[tokio::test]
async fn half_an_erasure_says_so_and_is_finished_by_another() {
    let scene = scene();
    scene.complete(1).await;
    scene.set(DOWN);
    let half = scene.store.erase(&key(1)).await.unwrap_err();
    assert_eq!(half.kind(), ErrorKind::Unavailable);
    for word in ["erased in memory", "shaky has not confirmed", "repeat"] {
        assert!(half.to_string().contains(word), "{half}");
    }
    scene.set(UP);
    scene.replay(1).await;
    assert_eq!(scene.store.erase(&key(1)).await.unwrap(), Erasure::Erased);
    assert_eq!(scene.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
}

#[tokio::test]
async fn half_a_forgetting_is_finished_when_the_authority_has_nothing_left_to_do() {
    let scene = scene();
    scene.complete(1).await;
    scene.set(DOWN);
    let half = scene.store.forget(&key(1)).await.unwrap_err();
    assert!(half.to_string().contains("forgotten in memory"), "{half}");
    let again = scene.store.forget(&key(1)).await.unwrap_err();
    assert!(again.to_string().contains("not there any more in memory"), "{again}");
    scene.set(UP);
    assert_eq!(scene.store.forget(&key(1)).await.unwrap(), Forgetting::Forgotten);
    assert_eq!(scene.store.forget(&key(1)).await.unwrap(), Forgetting::Missing);
    scene.granted(1).await;
}

/// The record changed while the copy could still be replayed.
#[tokio::test]
async fn a_removal_that_came_late_is_not_told_as_if_it_had_not() {
    let scene = scene();
    scene.complete(1).await;
    scene.complete(2).await;
    scene.set(BLINKS);
    let late = scene.store.erase(&key(1)).await.unwrap_err();
    scene.set(BLINKS);
    let other = scene.store.forget(&key(2)).await.unwrap_err();
    for late in [late, other] {
        assert_eq!(late.kind(), ErrorKind::Unavailable, "{late}");
        assert!(late.to_string().contains("late: shaky may have replayed it"), "{late}");
    }
    assert_eq!(scene.store.erase(&key(1)).await.unwrap(), Erasure::Erased);
    assert_eq!(scene.store.forget(&key(2)).await.unwrap(), Forgetting::Missing);
    scene.granted(2).await;
}

/// Whatever the front's reason: the record is gone, and only *unavailable* says that this may be so.
#[tokio::test]
async fn half_a_removal_is_never_told_as_none() {
    let scene = scene();
    scene.complete(1).await;
    scene.complete(2).await;
    scene.set(FULL);
    let erasing = scene.store.erase(&key(1)).await.unwrap_err();
    let forgetting = scene.store.forget(&key(2)).await.unwrap_err();
    assert_eq!([erasing.kind(), forgetting.kind()], [ErrorKind::Unavailable; 2]);
}

/// One takes the replica, the other the record: the key was forgotten once.
#[tokio::test]
async fn of_two_who_forget_a_key_at_once_one_finds_it_missing() {
    let scene = scene();
    scene.complete(1).await;
    scene.judge.is_forestalled.store(true, SeqCst);
    assert_eq!(scene.store.forget(&key(1)).await.unwrap(), Forgetting::Missing);
    assert!(!scene.is_copied(1).await);
}

/// Nor is a copy counted whose record somebody else took.
#[tokio::test]
async fn a_copy_that_comes_while_a_key_is_forgotten_is_not_what_was_forgotten() {
    let scene = scene();
    let copy = scene.slow_read(1).await;
    assert_eq!(scene.store.forget(&key(1)).await.unwrap(), Forgetting::Forgotten);
    scene.clock.advance(Replica::MARK);
    *scene.judge.late.lock() = Some(copy);
    assert_eq!(scene.store.forget(&key(1)).await.unwrap(), Forgetting::Missing);
    assert!(!scene.is_copied(1).await);
}

#[tokio::test]
async fn what_the_authority_did_not_confirm_is_not_removed_in_front() {
    let scene = scene();
    scene.complete(1).await;
    scene.stop_judge(true);
    scene.store.erase(&key(1)).await.unwrap_err();
    scene.store.forget(&key(1)).await.unwrap_err();
    scene.replay(1).await;
}

/// From the moment the key can run anew, nobody is told of what was forgotten.
#[tokio::test]
async fn a_copy_is_gone_before_its_record() {
    let scene = scene();
    scene.complete(1).await;
    scene.store.forget(&key(1)).await.unwrap();
    assert!(scene.judge.asked.lock().contains(&("get", true)));
    assert!(scene.judge.asked.lock().contains(&("forget", false)));
}

#[tokio::test]
async fn a_copy_is_gone_before_its_record_is_erased() {
    let scene = scene();
    scene.complete(1).await;
    scene.store.erase(&key(1)).await.unwrap();
    assert!(scene.judge.asked.lock().contains(&("erase", false)));
}

#[tokio::test]
async fn a_key_that_may_not_be_forgotten_stays_as_it_is() {
    let scene = scene();
    scene.granted(1).await;
    scene.set(DOWN);
    let refused = scene.store.forget(&key(1)).await.unwrap();
    assert_eq!(refused, Forgetting::Refused(State::InProgress));
}

#[tokio::test]
async fn a_slow_node_does_not_put_back_what_was_removed() {
    let scene = scene();
    let asked = Instant::now();
    let read = scene.slow_read(1).await;
    scene.store.erase(&key(1)).await.unwrap();
    scene.front.put(std::slice::from_ref(&read), asked).await;
    assert_eq!(scene.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
    // Not even when the mark is gone: by then it comes too late.
    scene.clock.advance(Replica::MARK);
    let long_ago = asked.checked_sub(Replica::LATEST + Duration::from_secs(1)).unwrap();
    scene.front.put(&[read], long_ago).await;
    assert_eq!(scene.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
}

impl Scene {
    /// What a node would put that asked the authority and then stood still.
    async fn slow_read(&self, byte: u8) -> Replica {
        let lease = self.granted(byte).await;
        self.judge.complete(&completion(&lease, "done")).await.unwrap();
        let asked = request(byte, "a");
        match self.judge.claim(&asked).await.unwrap() {
            Claim::Replay(replay) => replica::Original::replayed(&asked, &replay),
            claim => panic!("{claim:?}"),
        }
    }
}
