//! The scope of a key: principal, method and URL.

use http::Method;

use crate::http::{
    context::{AUTHORIZATION, CaseContext, KEY, assert_replay_of},
    routes::{ITEM, PLAIN},
};

pub(super) async fn another_principal_has_its_own_outcome(case: CaseContext<'_>) {
    let (alice, bob) = (case.post(PLAIN), case.post(PLAIN).set(AUTHORIZATION, case.bob()));
    let hers = alice.send().await;
    let his = bob.send().await;
    assert_ne!(his.body, hers.body, "no caller gets the outcome of another principal");
    case.assert_runs(2, "one key of two principals is two operations");
    assert_replay_of(&hers, &alice.send().await);
    assert_replay_of(&his, &bob.send().await);
}

pub(super) async fn a_user_id_in_a_plain_header_is_not_trusted(case: CaseContext<'_>) {
    let bob = case.post(PLAIN).set(AUTHORIZATION, case.bob()).with("x-user-id", "bob");
    let his = bob.send().await;
    let hers = case.post(PLAIN).with("x-user-id", "bob").send().await;
    assert_ne!(hers.body, his.body, "a header that any client can send is no principal");
    case.assert_runs(2, "a claimed user id does not open another principal's outcome");
}

pub(super) async fn equal_bodies_under_two_keys_both_run(case: CaseContext<'_>) {
    for key in ["one", "two"] {
        let answer = case.post(PLAIN).set(KEY, format!("{key}-{}", case.id)).send().await;
        assert_eq!(answer.status, 200, "an equal body under another key is another operation");
    }
    case.assert_runs(2, "two keys are two operations, though their bodies are equal");
}

pub(super) async fn another_method_is_another_operation(case: CaseContext<'_>) {
    case.post(PLAIN).send().await;
    let put = case.post(PLAIN).method(Method::PUT).send().await;
    assert_eq!((put.status.as_u16(), put.is_replay()), (200, false), "a PUT is not a POST");
    assert_eq!(case.runs()[1].method, Method::PUT, "the other method reaches its handler");
}

pub(super) async fn another_url_is_another_operation(case: CaseContext<'_>) {
    let first = case.post(PLAIN).send().await;
    let other = case.post(ITEM).send().await;
    assert!(!other.is_replay(), "one key on two URLs never replays the other's reply");
    assert_ne!(other.body, first.body, "one key on two URLs never shows the other's reply");
    case.assert_runs(2, "one key on two routes is two operations");
}

pub(super) async fn every_write_method_is_protected(case: CaseContext<'_>) {
    for (place, method) in [Method::PUT, Method::PATCH, Method::DELETE].into_iter().enumerate() {
        let request = case.post(PLAIN).method(method.clone());
        assert_replay_of(&request.send().await, &request.send().await);
        case.assert_runs(place + 1, &format!("{method} runs once"));
    }
}

pub(super) async fn safe_methods_pass(case: CaseContext<'_>) {
    for method in [Method::GET, Method::HEAD] {
        let before = case.runs().len();
        let request = case.post(PLAIN).method(method.clone()).body("");
        for _ in 0..2 {
            let answer = request.send().await;
            assert!(!answer.is_replay(), "a {method} is never replayed");
            assert_eq!(answer.status, 200, "a {method} passes");
        }
        case.assert_runs(before + 2, &format!("{method} is not guarded"));
    }
}
