//! Which keys are valid, and which are equal.

use crate::http::{
    context::{CaseContext, KEY, assert_replay_of},
    expected_problem::{KEY_INVALID, KEY_MISSING},
    routes::{PLAIN, POINTER, REQUIRED},
};

pub(super) async fn a_quoted_key_is_the_raw_key(case: CaseContext<'_>) {
    let raw = case.post(PLAIN);
    let quoted = raw.clone().set(KEY, format!("\"{}\"", case.key()));
    let first = quoted.send().await;
    assert_eq!(first.text(KEY), Some(&*format!("\"{}\"", case.key())), "the echo is as sent");
    assert_replay_of(&first, &raw.send().await);
    case.assert_runs(1, "a quoted key is the raw key");
}

pub(super) async fn a_key_may_have_255_characters(case: CaseContext<'_>) {
    let key = format!("{:~<255}", case.key());
    case.send_and_replay(&case.post(PLAIN).set(KEY, key)).await;
}

pub(super) async fn long_keys_differ_in_their_last_character(case: CaseContext<'_>) {
    for last in ["a", "b"] {
        let key = format!("{:~<254}{last}", case.key());
        let answer = case.post(PLAIN).set(KEY, key).send().await;
        assert!(!answer.is_replay(), "a key counts to its last character");
    }
    case.assert_runs(2, "two long keys are two operations");
}

pub(super) async fn bad_keys_are_refused(case: CaseContext<'_>) {
    let long = "k".repeat(256);
    let bad: [&[u8]; 8] =
        [b"", b"\"\"", long.as_bytes(), b"a\tb", b"caf\xe9", b"\"open", b"a, b", b"\"a\", \"b\""];
    for key in bad {
        let answer = case.post(PLAIN).set(KEY, key).send().await;
        let shown = String::from_utf8_lossy(key);
        KEY_INVALID.assert_is(&answer, &format!("the key {shown:?} is refused"));
    }
    case.assert_runs(0, "nothing runs under a bad key");
}

pub(super) async fn two_keys_are_refused(case: CaseContext<'_>) {
    for second in ["another", &case.key()] {
        let answer = case.post(PLAIN).with(KEY, second).send().await;
        KEY_INVALID.assert_is(&answer, "a request has one key");
    }
    case.assert_runs(0, "nothing runs under two keys");
}

pub(super) async fn keys_are_case_sensitive(case: CaseContext<'_>) {
    for key in [case.key().to_uppercase(), case.key().to_lowercase()] {
        let answer = case.post(PLAIN).set(KEY, key).send().await;
        assert!(!answer.is_replay(), "upper and lower case are two keys");
    }
    case.assert_runs(2, "upper and lower case are two operations");
}

pub(super) async fn a_request_without_key_passes(case: CaseContext<'_>) {
    let request = case.post(PLAIN).without(KEY);
    for _ in 0..2 {
        let answer = request.send().await;
        assert_eq!(answer.status, 200, "a request without a key passes");
        assert!(!answer.is_replay(), "nothing is recorded without a key");
    }
    case.assert_runs(2, "requests without key both run");
}

pub(super) async fn a_missing_key_is_refused_where_required(case: CaseContext<'_>) {
    let answer = case.post(REQUIRED).without(KEY).send().await;
    KEY_MISSING.assert_is(&answer, "this route requires a key");
    case.assert_runs(0, "nothing runs without the key a route requires");
    case.send_and_replay(&case.post(REQUIRED)).await;
}

pub(super) async fn a_key_can_come_from_the_body(case: CaseContext<'_>) {
    let body = format!(r#"{{"request_id":"{}","amount":1}}"#, case.key());
    case.send_and_replay(&case.post(POINTER).without(KEY).body(body)).await;
}

pub(super) async fn the_header_wins_over_the_body(case: CaseContext<'_>) {
    let body = format!(r#"{{"request_id":"{}","amount":1}}"#, case.key());
    let request = case.post(POINTER).body(body);
    for header in ["one", "two"] {
        let key = format!("{header}-{}", case.id);
        let answer = request.clone().set(KEY, &key).send().await;
        assert!(!answer.is_replay(), "the key in the header is the key");
    }
    case.assert_runs(2, "two keys in the header are two operations, whatever the body says");
}
