//! Bodies are bounded both ways, and never at the price of a second run.

use crate::http::{
    Ask,
    refusal::{KEY_MISSING, TOO_LARGE},
    routes::{PLAIN, REQUIRED, SMALL},
    scene::{KEY, Scene},
    upstream::header::{BODY, HEADER},
};

pub(super) async fn an_oversize_request_is_refused(scene: Scene<'_>) {
    let half = "x".repeat(1 << 10);
    for ask in [scene.post(SMALL).body(half.repeat(2)), scene.post(SMALL).chunks([&half, &half])] {
        TOO_LARGE.is(&ask.send().await, "what cannot be compared is not let through");
    }
    scene.ran(0, "an oversize request does not run");
}

pub(super) async fn a_caller_still_sending_hears_why_not(scene: Scene<'_>) {
    let (fits_no_limit, keyless) = unread(&scene, 256 << 10);
    TOO_LARGE.is(&fits_no_limit.send().await, "a body that never fits");
    KEY_MISSING.is(&keyless.send().await, "a body nobody reads");
    scene.ran(0, "a refused request does not run");
}

pub(super) async fn nobody_sends_a_body_for_ever(scene: Scene<'_>) {
    let (fits_no_limit, keyless) = unread(&scene, 8 << 20);
    // A door may close the connection over so much, and then its answer may be lost.
    for ask in [fits_no_limit, keyless] {
        let served = ask.try_send().await.is_ok_and(|answer| answer.status.is_success());
        assert!(!served, "what is refused is not served");
    }
    scene.ran(0, "a refused request does not run");
}

/// A request over the limit, and one without the key its route requires.
fn unread(scene: &Scene<'_>, size: usize) -> (Ask, Ask) {
    let body = vec![b'x'; size];
    (scene.post(SMALL).body(body.clone()), scene.post(REQUIRED).without(KEY).body(body))
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
    let ask = scene.post(route).with(BODY, format!("big:{size}")).with(HEADER, "location: /a");
    let first = ask.send().await;
    assert_eq!(first.body.len(), size, "the first caller gets an oversize answer whole");
    for _ in 0..2 {
        super::is_omitted(&first, &ask.send().await);
    }
    scene.ran(1, "an answer too big to keep is not run again");
}
