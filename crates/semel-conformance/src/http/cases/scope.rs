//! Whose key it is, and for what.

use http::Method;

use crate::http::{
    routes::{ITEM, PLAIN},
    scene::{AUTHORIZATION, KEY, Scene, is_replay_of},
};

pub(super) async fn another_principal_has_its_own_outcome(scene: Scene<'_>) {
    let (alice, bob) = (scene.post(PLAIN), scene.post(PLAIN).set(AUTHORIZATION, scene.bob()));
    let hers = alice.send().await;
    let his = bob.send().await;
    assert_ne!(his.body, hers.body, "nobody is shown another principal's outcome");
    scene.ran(2, "one key of two principals is two operations");
    is_replay_of(&hers, &alice.send().await);
    is_replay_of(&his, &bob.send().await);
}

pub(super) async fn a_claimed_user_id_is_not_believed(scene: Scene<'_>) {
    let bob = scene.post(PLAIN).set(AUTHORIZATION, scene.bob()).with("x-user-id", "bob");
    let his = bob.send().await;
    let hers = scene.post(PLAIN).with("x-user-id", "bob").send().await;
    assert_ne!(hers.body, his.body, "a header anybody can send is no principal");
    scene.ran(2, "a claimed user id does not open another principal's outcome");
}

pub(super) async fn equal_bodies_under_two_keys_both_run(scene: Scene<'_>) {
    for key in ["one", "two"] {
        let answer = scene.post(PLAIN).set(KEY, format!("{key}-{}", scene.id)).send().await;
        assert_eq!(answer.status, 200, "an equal body under another key is another operation");
    }
    scene.ran(2, "two keys are two operations, though their bodies are equal");
}

pub(super) async fn another_method_is_another_operation(scene: Scene<'_>) {
    scene.post(PLAIN).send().await;
    let put = scene.post(PLAIN).method(Method::PUT).send().await;
    assert_eq!((put.status.as_u16(), put.is_replay()), (200, false), "a PUT is not a POST");
    assert_eq!(scene.runs()[1].method, Method::PUT, "the other method reaches its handler");
}

pub(super) async fn another_url_is_another_operation(scene: Scene<'_>) {
    let first = scene.post(PLAIN).send().await;
    let other = scene.post(ITEM).send().await;
    assert!(!other.is_replay(), "one key on two URLs never replays the other's reply");
    assert_ne!(other.body, first.body, "one key on two URLs never shows the other's reply");
    scene.ran(2, "one key on two routes is two operations");
}

pub(super) async fn every_write_is_guarded(scene: Scene<'_>) {
    for (place, method) in [Method::PUT, Method::PATCH, Method::DELETE].into_iter().enumerate() {
        let ask = scene.post(PLAIN).method(method.clone());
        is_replay_of(&ask.send().await, &ask.send().await);
        scene.ran(place + 1, &format!("{method} runs once"));
    }
}

pub(super) async fn safe_methods_pass(scene: Scene<'_>) {
    for method in [Method::GET, Method::HEAD] {
        let before = scene.runs().len();
        let ask = scene.post(PLAIN).method(method.clone()).body("");
        for _ in 0..2 {
            let answer = ask.send().await;
            assert!(!answer.is_replay(), "a {method} is never replayed");
            assert_eq!(answer.status, 200, "a {method} passes");
        }
        scene.ran(before + 2, &format!("{method} is not guarded"));
    }
}
