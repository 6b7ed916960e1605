//! Routes that only watch, and routes that are let alone.

use crate::http::{
    routes::{OBSERVE, OFF},
    scene::{KEY, Scene, answers},
};

pub(super) async fn observing_never_interferes(scene: Scene<'_>) {
    lets_alone(&scene, OBSERVE).await;
}

pub(super) async fn off_never_interferes(scene: Scene<'_>) {
    lets_alone(&scene, OFF).await;
}

async fn lets_alone(scene: &Scene<'_>, route: &str) {
    let ask = scene.post(route);
    let asks = [ask.clone(), ask.clone(), ask.clone().body("{}"), ask.set(KEY, "a, b")];
    for (place, ask) in asks.into_iter().enumerate() {
        let answer = ask.send().await;
        assert_eq!(answer.body, format!("{{\"run\":{}}}", place + 1), "{route} lets all pass");
        assert!(!answer.is_replay(), "{route} marks nothing");
        assert_eq!(answer.text("semel-status"), None, "{route} refuses nothing");
    }
    scene.ran(4, &format!("{route} lets everything run"));
}

pub(super) async fn observing_makes_nobody_wait(scene: Scene<'_>) {
    let ask = scene.post(OBSERVE);
    // Both wait at the gate: neither can have waited for the other.
    let both = vec![scene.running(&ask).await, scene.running(&ask).await];
    scene.open();
    let bodies: Vec<_> = answers(both).await.into_iter().map(|answer| answer.body).collect();
    assert_eq!(bodies, [r#"{"run":1}"#, r#"{"run":2}"#], "each gets the answer of its own run");
}
