//! A key names one request: what makes it another one, and what does not.

use crate::http::{
    Ask,
    refusal::{MISMATCH, MISMATCH_422},
    routes::{CANONICAL, ITEM, LARGE, PLAIN, UNPROCESSABLE},
    scene::{CONTENT_TYPE, Scene, is_replay_of},
};

pub(super) async fn another_body_is_refused(scene: Scene<'_>) {
    let ask = scene.post(PLAIN);
    differ(&scene, &ask, &ask.clone().body(r#"{"amount":2}"#), "another body").await;
}

pub(super) async fn no_body_is_another_body(scene: Scene<'_>) {
    let ask = scene.post(PLAIN);
    differ(&scene, &ask, &ask.clone().body(""), "no body").await;
}

pub(super) async fn another_path_parameter_is_refused(scene: Scene<'_>) {
    let ask = scene.post(ITEM);
    differ(&scene, &ask, &ask.clone().to("/kit/items/2"), "another path parameter").await;
}

pub(super) async fn another_query_is_refused(scene: Scene<'_>) {
    let ask = scene.post("/kit/plain?to=1");
    differ(&scene, &ask, &ask.clone().to("/kit/plain?to=2"), "another query").await;
}

pub(super) async fn another_content_type_is_refused(scene: Scene<'_>) {
    let ask = scene.post(PLAIN);
    let other = ask.clone().set(CONTENT_TYPE, "text/plain");
    differ(&scene, &ask, &other, "another content type").await;
}

pub(super) async fn another_content_encoding_is_refused(scene: Scene<'_>) {
    let ask = scene.post(PLAIN);
    let other = ask.clone().set("content-encoding", "gzip");
    differ(&scene, &ask, &other, "another content encoding").await;
}

pub(super) async fn another_overridden_method_is_refused(scene: Scene<'_>) {
    let ask = scene.post(PLAIN);
    let other = ask.clone().set("x-http-method-override", "DELETE");
    differ(&scene, &ask, &other, "another overridden method").await;
}

pub(super) async fn another_spelling_of_a_path_is_the_same_path(scene: Scene<'_>) {
    let ask = scene.post("/kit/items/a%2Fb");
    let first = ask.send().await;
    is_replay_of(&first, &ask.clone().to("/kit/items/%61%2f%62").send().await);
    scene.ran(1, "another spelling of a path is no other request");
}

pub(super) async fn chunked_bodies_are_compared(scene: Scene<'_>) {
    let ask = scene.post(PLAIN).chunks(["{\"amount\"", ":1}"]);
    differ(&scene, &ask, &ask.clone().chunks(["{\"amount\"", ":2}"]), "another chunk").await;
}

pub(super) async fn framing_does_not_matter(scene: Scene<'_>) {
    let first = scene.post(PLAIN).send().await;
    let chunked = scene.post(PLAIN).chunks(["{\"am", "ount\":1", "}"]).send().await;
    is_replay_of(&first, &chunked);
    scene.ran(1, "the same bytes in chunks are the same request");
}

pub(super) async fn the_last_byte_counts(scene: Scene<'_>) {
    large(&scene, PLAIN, 900 << 10).await;
}

pub(super) async fn the_last_byte_counts_beyond_a_mebibyte(scene: Scene<'_>) {
    large(&scene, LARGE, 2 << 20).await;
}

async fn large(scene: &Scene<'_>, route: &str, size: usize) {
    let body = |last: &str| format!("{}{last}", "x".repeat(size - 1));
    let ask = scene.post(route).set(CONTENT_TYPE, "text/plain");
    differ(scene, &ask.clone().body(body("1")), &ask.body(body("2")), "another last byte").await;
}

pub(super) async fn a_mismatch_can_be_unprocessable(scene: Scene<'_>) {
    let ask = scene.post(UNPROCESSABLE);
    ask.send().await;
    let refused = ask.clone().body("{}").send().await;
    MISMATCH_422.is(&refused, "this route answers a mismatch with 422");
    scene.ran(1, "a mismatch does not run");
}

pub(super) async fn canonical_json_has_one_spelling(scene: Scene<'_>) {
    let ask = scene.post(CANONICAL);
    let first = ask.clone().body(r#"{"a":1,"b":{"c":2,"d":3},"sent_at":"now"}"#).send().await;
    let spelt = r#"{ "sent_at": "later", "b": {"d": 3, "c": 2}, "a": 1 }"#;
    is_replay_of(&first, &ask.body(spelt).send().await);
    scene.ran(1, "order, space and left-out fields make no other request");
}

pub(super) async fn canonical_json_keeps_every_digit(scene: Scene<'_>) {
    let ask = scene.post(CANONICAL).body(r#"{"id":9007199254740993}"#);
    let other = ask.clone().body(r#"{"id":9007199254740992}"#);
    differ(&scene, &ask, &other, "another big integer").await;
}

/// Holds the door to refusing `other` after `ask`, and to still replaying `ask`.
async fn differ(scene: &Scene<'_>, ask: &Ask, other: &Ask, what: &str) {
    let first = ask.send().await;
    assert!(first.status.is_success(), "the first request is served: {first:?}");
    MISMATCH.is(&other.send().await, &format!("{what} under a used key is refused"));
    scene.ran(1, &format!("{what} under a used key does not run"));
    is_replay_of(&first, &ask.send().await);
}
