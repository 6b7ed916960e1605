//! Runs that end without saying what they did, and keys that are at their end.

use crate::http::{
    Answer,
    refusal::{ERASED, EXHAUSTED, FAILED, UNKNOWN},
    routes::{CAPPED, HOLD, PLAIN},
    scene::Scene,
    upstream::header::{PANIC, STATUS},
};

pub(super) async fn a_panic_is_answered_and_runs_again(scene: Scene<'_>) {
    let ask = scene.post(PLAIN);
    let first = ask.clone().with(PANIC, "1").send().await;
    FAILED.or_broken(&first, "a panic is answered");
    let done = |answer: &Answer| answer.status == 200;
    let again = scene.until(&ask, done, "a panic does not keep its key").await;
    assert!(!again.is_replay(), "a panic leaves nothing to replay");
    scene.ran(2, "a retry after a panic runs");
}

pub(super) async fn a_panic_on_hold_stays_unknown(scene: Scene<'_>) {
    let ask = scene.post(HOLD);
    let first = ask.clone().with(PANIC, "1").send().await;
    UNKNOWN.is(&first, "the first caller is told that its key is held");
    for _ in 0..2 {
        UNKNOWN.is(&ask.send().await, "an unknown outcome stays unknown");
    }
    scene.ran(1, "on hold nothing runs twice");
}

pub(super) async fn a_timeout_on_hold_stays_unknown(scene: Scene<'_>) {
    let ask = scene.post(HOLD).set(STATUS, "408");
    let first = ask.send().await;
    assert_eq!(first.status, 408, "the first caller gets the handler's status");
    assert_eq!(first.text("stripe-should-retry"), Some("false"), "a held key is not retried");
    UNKNOWN.is(&ask.set(STATUS, "200").send().await, "nobody knows what a timeout did");
    scene.ran(1, "on hold nothing runs twice");
}

pub(super) async fn attempts_end_at_the_cap(scene: Scene<'_>) {
    let ask = scene.post(CAPPED).set(STATUS, "503");
    for _ in 0..2 {
        assert_eq!(ask.send().await.status, 503, "up to the cap a failure runs again");
    }
    for _ in 0..2 {
        EXHAUSTED.is(&ask.clone().set(STATUS, "200").send().await, "attempts are used up");
    }
    scene.ran(2, "beyond the cap nothing runs");
}

pub(super) async fn an_erased_key_is_gone(scene: Scene<'_>) {
    let ask = scene.post(PLAIN);
    ask.send().await;
    scene.door.erase("POST /kit/plain", &scene.alice(), &scene.key()).await;
    ERASED.is(&ask.send().await, "an erased outcome is gone");
    ERASED.is(&ask.body("{}").send().await, "an erased key remembers no request");
    scene.ran(1, "an erased key does not run again");
}
