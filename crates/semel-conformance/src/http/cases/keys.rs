//! What is a key, what is none, and which keys are one.

use crate::http::{
    refusal::{KEY_INVALID, KEY_MISSING},
    routes::{PLAIN, POINTER, REQUIRED},
    scene::{KEY, Scene, is_replay_of},
};

pub(super) async fn a_quoted_key_is_the_raw_key(scene: Scene<'_>) {
    let raw = scene.post(PLAIN);
    let quoted = raw.clone().set(KEY, format!("\"{}\"", scene.key()));
    let first = quoted.send().await;
    assert_eq!(first.text(KEY), Some(&*format!("\"{}\"", scene.key())), "the echo is as sent");
    is_replay_of(&first, &raw.send().await);
    scene.ran(1, "a quoted key is the raw key");
}

pub(super) async fn a_key_may_have_255_characters(scene: Scene<'_>) {
    let key = format!("{:~<255}", scene.key());
    scene.replayed(&scene.post(PLAIN).set(KEY, key)).await;
}

pub(super) async fn long_keys_differ_in_their_last_character(scene: Scene<'_>) {
    for last in ["a", "b"] {
        let key = format!("{:~<254}{last}", scene.key());
        let answer = scene.post(PLAIN).set(KEY, key).send().await;
        assert!(!answer.is_replay(), "a key counts to its last character");
    }
    scene.ran(2, "two long keys are two operations");
}

pub(super) async fn bad_keys_are_refused(scene: Scene<'_>) {
    let long = "k".repeat(256);
    let bad: [&[u8]; 8] =
        [b"", b"\"\"", long.as_bytes(), b"a\tb", b"caf\xe9", b"\"open", b"a, b", b"\"a\", \"b\""];
    for key in bad {
        let answer = scene.post(PLAIN).set(KEY, key).send().await;
        let shown = String::from_utf8_lossy(key);
        KEY_INVALID.is(&answer, &format!("the key {shown:?} is refused"));
    }
    scene.ran(0, "nothing runs under a bad key");
}

pub(super) async fn two_keys_are_refused(scene: Scene<'_>) {
    for second in ["another", &scene.key()] {
        let answer = scene.post(PLAIN).with(KEY, second).send().await;
        KEY_INVALID.is(&answer, "a request has one key");
    }
    scene.ran(0, "nothing runs under two keys");
}

pub(super) async fn keys_are_case_sensitive(scene: Scene<'_>) {
    for key in [scene.key().to_uppercase(), scene.key().to_lowercase()] {
        let answer = scene.post(PLAIN).set(KEY, key).send().await;
        assert!(!answer.is_replay(), "upper and lower case are two keys");
    }
    scene.ran(2, "upper and lower case are two operations");
}

pub(super) async fn a_request_without_key_passes(scene: Scene<'_>) {
    let ask = scene.post(PLAIN).without(KEY);
    for _ in 0..2 {
        let answer = ask.send().await;
        assert_eq!(answer.status, 200, "no key, no guard");
        assert!(!answer.is_replay(), "nothing is recorded without a key");
    }
    scene.ran(2, "requests without key both run");
}

pub(super) async fn a_missing_key_is_refused_where_required(scene: Scene<'_>) {
    let answer = scene.post(REQUIRED).without(KEY).send().await;
    KEY_MISSING.is(&answer, "this route requires a key");
    scene.ran(0, "nothing runs without the key a route requires");
    scene.replayed(&scene.post(REQUIRED)).await;
}

pub(super) async fn a_key_can_come_from_the_body(scene: Scene<'_>) {
    let body = format!(r#"{{"request_id":"{}","amount":1}}"#, scene.key());
    scene.replayed(&scene.post(POINTER).without(KEY).body(body)).await;
}

pub(super) async fn the_header_wins_over_the_body(scene: Scene<'_>) {
    let body = format!(r#"{{"request_id":"{}","amount":1}}"#, scene.key());
    let ask = scene.post(POINTER).body(body);
    for header in ["one", "two"] {
        let key = format!("{header}-{}", scene.id);
        let answer = ask.clone().set(KEY, &key).send().await;
        assert!(!answer.is_replay(), "the key in the header is the key");
    }
    scene.ran(2, "two keys in the header are two operations, whatever the body says");
}
