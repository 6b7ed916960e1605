//! Which answers of the handler are recorded.

use crate::http::{
    Ask,
    refusal::MISMATCH,
    routes::{FINAL, HOLD, PLAIN},
    scene::{KEY, Scene, is_replay_of},
    upstream::header::{HEADER, STATUS},
};

pub(super) async fn client_errors_are_recorded(scene: Scene<'_>) {
    for (place, status) in ["400", "404", "409", "422"].into_iter().enumerate() {
        let ask = keyed(&scene, PLAIN, status);
        let first = ask.send().await;
        assert_eq!(first.status.as_str(), status, "the first caller gets the handler's status");
        is_replay_of(&first, &ask.set(STATUS, "200").send().await);
        scene.ran(place + 1, &format!("a {status} is an outcome and is not run again"));
    }
}

pub(super) async fn server_errors_run_again(scene: Scene<'_>) {
    for (place, status) in ["408", "500", "502", "503", "504"].into_iter().enumerate() {
        let ask = keyed(&scene, PLAIN, status);
        let first = ask.send().await;
        assert_eq!(first.status.as_str(), status, "the first caller gets the handler's status");
        let again = ask.set(STATUS, "200").send().await;
        assert_eq!(again.status, 200, "a {status} is not an outcome: {again:?}");
        scene.ran(2 * place + 2, &format!("a retry after a {status} runs"));
    }
}

pub(super) async fn a_server_error_keeps_the_key_for_its_request(scene: Scene<'_>) {
    let ask = keyed(&scene, PLAIN, "503");
    ask.send().await;
    MISMATCH.is(&ask.body("{}").send().await, "a failed run may have had an effect");
    scene.ran(1, "another body under a failed key does not run");
}

pub(super) async fn answers_without_effect_free_the_key(scene: Scene<'_>) {
    for (place, status) in ["401", "403", "425", "429"].into_iter().enumerate() {
        let ask = keyed(&scene, PLAIN, status);
        let first = ask.send().await;
        assert_eq!(first.status.as_str(), status, "the first caller gets the handler's status");
        let again = ask.set(STATUS, "200").body("{}").send().await;
        assert_eq!(again.status, 200, "after a {status} any request may use the key: {again:?}");
        scene.ran(2 * place + 2, &format!("a {status} had no effect and is not recorded"));
    }
}

pub(super) async fn an_inner_doors_refusal_is_not_recorded(scene: Scene<'_>) {
    let ask = keyed(&scene, PLAIN, "409").with(HEADER, "semel-status: in-progress");
    assert_eq!(ask.send().await.status, 409, "an inner door's refusal is passed on");
    let again = ask.without(HEADER).set(STATUS, "200").send().await;
    assert_eq!(again.status, 200, "an inner door's refusal is no outcome: {again:?}");
    scene.ran(2, "a retry after an inner door's refusal runs");
}

pub(super) async fn a_refusal_counts_on_its_own_status_alone(scene: Scene<'_>) {
    let said = [("200", "attempt-failed"), ("404", "in-progress"), ("409", "no-such-name")];
    for (place, (status, name)) in said.into_iter().enumerate() {
        let ask = keyed(&scene, PLAIN, status).with(HEADER, format!("semel-status: {name}"));
        let first = ask.send().await;
        assert_eq!(first.text("semel-status"), None, "{name} is no refusal on a {status}");
        is_replay_of(&first, &ask.send().await);
        scene.ran(place + 1, &format!("a {status} is an outcome, whatever Semel-Status it has"));
    }
}

pub(super) async fn server_errors_can_be_final(scene: Scene<'_>) {
    stays(&scene, FINAL).await;
}

pub(super) async fn server_errors_on_hold_are_final(scene: Scene<'_>) {
    stays(&scene, HOLD).await;
}

async fn stays(scene: &Scene<'_>, route: &str) {
    let ask = keyed(scene, route, "500");
    let first = ask.send().await;
    assert_eq!(first.status, 500, "the first caller gets the handler's status");
    is_replay_of(&first, &ask.set(STATUS, "200").send().await);
    scene.ran(1, "a final server error is not run again");
}

/// A request whose key is of its own for every status.
fn keyed(scene: &Scene<'_>, route: &str, status: &str) -> Ask {
    scene.post(route).set(KEY, format!("{status}-{}", scene.id)).set(STATUS, status)
}
