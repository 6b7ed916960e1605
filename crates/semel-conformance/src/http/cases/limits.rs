//! Bodies are bounded both ways, and never at the price of a second run.

use crate::http::{
    refusal::TOO_LARGE,
    routes::{PLAIN, SMALL},
    scene::Scene,
    upstream::header::BODY,
};

pub(super) async fn an_oversize_request_is_refused(scene: Scene<'_>) {
    let half = "x".repeat(1 << 10);
    for ask in [scene.post(SMALL).body(half.repeat(2)), scene.post(SMALL).chunks([&half, &half])] {
        TOO_LARGE.is(&ask.send().await, "what cannot be compared is not let through");
    }
    scene.ran(0, "an oversize request does not run");
}

pub(super) async fn a_request_at_the_limit_is_served(scene: Scene<'_>) {
    scene.replayed(&scene.post(SMALL).body("x".repeat(1 << 10))).await;
}

pub(super) async fn an_oversize_answer_never_runs_again(scene: Scene<'_>) {
    omitted(&scene, SMALL, 4 << 10).await;
}

pub(super) async fn an_answer_over_a_mebibyte_never_runs_again(scene: Scene<'_>) {
    omitted(&scene, PLAIN, 2 << 20).await;
}

async fn omitted(scene: &Scene<'_>, route: &str, size: usize) {
    let ask = scene.post(route).with(BODY, format!("big:{size}"));
    let first = ask.send().await;
    assert_eq!(first.body.len(), size, "the first caller gets an oversize answer whole");
    for _ in 0..2 {
        super::is_omitted(&first, &ask.send().await);
    }
    scene.ran(1, "an answer too big to keep is not run again");
}
