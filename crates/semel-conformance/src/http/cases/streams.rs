//! Bodies that come bit by bit, and bodies that do not come to their end.

use crate::http::{
    Answer, Ask,
    refusal::UNKNOWN,
    routes::{HOLD, PLAIN},
    scene::Scene,
    upstream::header::{BREAK, HEADER, STEP, STREAM},
};

pub(super) async fn a_stream_passes_while_it_runs(scene: Scene<'_>) {
    let ask = scene.post(PLAIN).set(STREAM, "3").set(STEP, &scene.id);
    let mut reply = ask.start().await.reply().await.expect("a stream has a head");
    let first = reply.piece().await.expect("a stream is not broken off");
    // The gate is shut: the second event is not yet written.
    assert_eq!(first.as_deref(), Some(&b"data: 1.1\n\n"[..]), "an event passes when it is sent");
    scene.open();
    scene.open();
    let rest = reply.whole().await.expect("a stream is not broken off");
    assert_eq!(rest.body, "data: 1.2\n\ndata: 1.3\n\n", "a stream passes whole");
}

pub(super) async fn a_stream_is_recorded_without_its_body(scene: Scene<'_>) {
    let ask = scene.post(PLAIN).set(STREAM, "3").with(HEADER, "location: /a");
    let first = ask.send().await;
    assert_eq!(first.body, "data: 1.1\n\ndata: 1.2\n\ndata: 1.3\n\n", "a stream passes whole");
    let again = ask.send().await;
    scene.ran(1, "a stream that came to its end is not run again");
    super::is_omitted(&first, &again);
}

pub(super) async fn a_hang_up_does_not_end_a_stream(scene: Scene<'_>) {
    let ask = scene.post(PLAIN).set(STREAM, "3").set(STEP, &scene.id);
    let mut reply = ask.start().await.reply().await.expect("a stream has a head");
    reply.piece().await.expect("a stream is not broken off");
    drop(reply);
    scene.strangers_pass().await;
    scene.open();
    scene.open();
    let again = ask.send().await;
    scene.ran(1, "a stream whose caller hung up does not run again");
    assert!(again.is_replay(), "a stream nobody reads comes to its end: {again:?}");
    assert_eq!(again.text("idempotency-body"), Some("omitted"), "an omitted body is admitted");
}

pub(super) async fn a_broken_stream_is_not_recorded(scene: Scene<'_>) {
    broken(&scene, scene.post(PLAIN).set(STREAM, "4")).await;
}

pub(super) async fn a_broken_body_is_not_recorded(scene: Scene<'_>) {
    broken(&scene, scene.post(PLAIN)).await;
}

async fn broken(scene: &Scene<'_>, ask: Ask) {
    let first = ask.clone().with(BREAK, "1").try_send().await;
    let whole = first.is_ok_and(|answer| answer.status.is_success());
    assert!(!whole, "a body that broke off does not look whole");
    let served = |answer: &Answer| answer.status == 200;
    let again = scene.until(&ask, served, "a broken answer does not keep its key").await;
    assert!(!again.is_replay(), "half an answer is not replayed");
    scene.ran(2, "a retry after a broken answer runs");
}

pub(super) async fn a_broken_stream_on_hold_is_unknown(scene: Scene<'_>) {
    let ask = scene.post(HOLD).set(STREAM, "4");
    drop(ask.clone().with(BREAK, "1").try_send().await);
    UNKNOWN.is(&ask.send().await, "nobody knows how far a broken run came");
    scene.ran(1, "on hold nothing runs twice");
}
