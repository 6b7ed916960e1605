//! A store that fails before the work, and one that fails after it.

use futures_util::future::join_all;

use crate::http::{
    Answer, Ask,
    refusal::NO_STORE,
    routes::{IMPATIENT, OBSERVE, OFF, PLAIN},
    scene::{KEY, Scene},
};

pub(super) async fn nothing_runs_without_the_store(scene: Scene<'_>) {
    let ask = scene.post(IMPATIENT);
    scene.door.break_store().await;
    let refused = ask.send().await;
    scene.door.mend_store().await;
    NO_STORE.is(&refused, "without a store nothing is protected, so nothing is served");
    scene.ran(0, "nothing runs without the store");
    let served = |answer: &Answer| answer.status == 200;
    let first = scene.until(&ask, served, "a mended store serves again").await;
    assert!(!first.is_replay(), "a refused request left nothing behind");
    scene.ran(1, "a mended store serves again");
}

pub(super) async fn an_effect_that_was_not_recorded_is_still_told(scene: Scene<'_>) {
    let ask = scene.post(IMPATIENT);
    let first = scene.running(&ask).await;
    scene.door.break_store().await;
    scene.open();
    let first = first.answer().await;
    scene.door.mend_store().await;
    assert_eq!(first.status, 200, "the effect happened, and its caller is told so: {first:?}");
    assert_eq!(first.text("idempotency-stored"), Some("false"), "the missing record is admitted");
    let again = scene.until(&ask, Answer::is_replay, "a mended store gets the record").await;
    assert_eq!(again.body, first.body, "what was recorded late is the run's own outcome");
    scene.ran(1, "an effect that was not recorded at once does not run again");
}

pub(super) async fn unguarded_requests_need_no_store(scene: Scene<'_>) {
    let asks = [scene.post(PLAIN).without(KEY), scene.post(OBSERVE), scene.post(OFF)];
    scene.door.break_store().await;
    let answers = join_all(asks.iter().map(Ask::send)).await;
    scene.door.mend_store().await;
    for answer in answers {
        assert_eq!(answer.status, 200, "what is not guarded asks no store: {answer:?}");
    }
}
