//! The door's own answers, as clients read them.

use crate::http::{
    refusal::{IN_PROGRESS, KEY_INVALID, MISMATCH},
    routes::IMPATIENT,
    scene::{KEY, Scene},
};

pub(super) async fn refusals_tell_clients_what_to_do(scene: Scene<'_>) {
    let ask = scene.post(IMPATIENT);
    let first = scene.running(&ask).await;
    let busy = scene.meanwhile(&ask, "no second run").await;
    IN_PROGRESS.is(&busy, "a retry helps, after a while");
    let other = scene.meanwhile(&ask.clone().body("{}"), "no second run").await;
    MISMATCH.is(&other, "no retry helps");
    KEY_INVALID.is(&ask.set(KEY, "").send().await, "no retry helps");
    scene.open();
    assert_eq!(first.answer().await.status, 200, "refusals do not disturb the run");
}

pub(super) async fn refusals_can_be_read_by_browsers(scene: Scene<'_>) {
    let answer =
        scene.post(IMPATIENT).set(KEY, "").with("origin", "https://a.example").send().await;
    for name in ["semel-status", "stripe-should-retry", "retry-after"] {
        assert!(super::headers::exposes(&answer, name), "a browser may read {name}: {answer:?}");
    }
}
