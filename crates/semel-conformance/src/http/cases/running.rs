//! What happens while the work is under way.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use crate::http::{
    Ask, Fate,
    refusal::{IN_PROGRESS, MISMATCH},
    routes::{IMPATIENT, PLAIN},
    scene::{KEY, Scene, answers, is_replay_of},
    upstream::header::{GATE, STATUS},
};

pub(super) async fn one_of_many_runs(scene: Scene<'_>) {
    let ask = scene.post(PLAIN).set(GATE, &scene.id);
    let all = join_all((0..100).map(|_| ask.start())).await;
    scene.arrived(1).await;
    scene.open();
    let answers = answers(all).await;
    scene.ran(1, "of a hundred at once, one runs");
    let (again, first): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.is_replay());
    assert_eq!(first.len(), 1, "of a hundred at once, one is the first");
    again.iter().for_each(|again| is_replay_of(first[0], again));
}

pub(super) async fn an_impatient_duplicate_is_told_to_come_back(scene: Scene<'_>) {
    let ask = scene.post(IMPATIENT);
    let first = scene.running(&ask).await;
    let busy = scene.meanwhile(&ask, "a duplicate does not run beside its first").await;
    IN_PROGRESS.is(&busy, "the first is still running");
    scene.open();
    is_replay_of(&first.answer().await, &ask.send().await);
}

pub(super) async fn another_body_is_refused_at_once(scene: Scene<'_>) {
    let ask = scene.post(PLAIN);
    let first = scene.running(&ask).await;
    // The gate is shut: whoever waits for the run would wait for ever.
    let other = scene.meanwhile(&ask.clone().body("{}"), "a mismatch does not run").await;
    MISMATCH.is(&other, "another body under a running key is refused at once");
    scene.open();
    assert_eq!(first.answer().await.status, 200, "the run is not disturbed");
}

pub(super) async fn refusals_leave_the_record_alone(scene: Scene<'_>) {
    let ask = scene.post(IMPATIENT);
    let other = ask.clone().body("{}");
    let first = scene.running(&ask).await;
    IN_PROGRESS.is(&scene.meanwhile(&ask, "no second run").await, "still running");
    MISMATCH.is(&scene.meanwhile(&other, "no second run").await, "another body");
    scene.open();
    let first = first.answer().await;
    is_replay_of(&first, &ask.send().await);
    MISMATCH.is(&other.send().await, "another body, after the run");
    is_replay_of(&first, &ask.send().await);
    scene.ran(1, "refusals run nothing");
}

pub(super) async fn a_hang_up_does_not_end_the_work(scene: Scene<'_>) {
    let ask = scene.post(PLAIN);
    drop(scene.running(&ask).await);
    scene.strangers_pass().await;
    scene.open();
    scene.ended().await;
    assert_eq!(scene.runs()[0].fate, Fate::Answered, "the work goes on when its caller hangs up");
    let again = ask.send().await;
    scene.ran(1, "a retry after a hang-up does not run");
    assert!(again.is_replay(), "a retry after a hang-up gets the outcome: {again:?}");
    assert_eq!(again.body, r#"{"run":1}"#, "a retry after a hang-up gets the first run's body");
}

pub(super) async fn waiters_outlast_the_first_caller(scene: Scene<'_>) {
    let ask = scene.post(PLAIN);
    let first = scene.running(&ask).await;
    let mut waiters = join_all((0..10).map(|_| ask.start())).await;
    scene.strangers_pass().await;
    drop((first, waiters.pop()));
    scene.strangers_pass().await;
    scene.open();
    for answer in answers(waiters).await {
        assert_eq!(answer.status, 200, "who waits gets the outcome, whoever hung up");
        assert_eq!(answer.body, r#"{"run":1}"#, "who waits gets the outcome, whoever hung up");
    }
    scene.ran(1, "a hang-up does not make another one run");
}

pub(super) async fn many_keys_at_once_do_not_mix(scene: Scene<'_>) {
    let asks = (0..50).map(|key| scene.post(PLAIN).set(KEY, format!("{key}-{}", scene.id)));
    let twice = asks.flat_map(|ask| [ask.clone(), ask]).collect::<Vec<_>>();
    let answers = join_all(twice.iter().map(Ask::send)).await;
    scene.ran(50, "every key runs once");
    let bodies: BTreeSet<_> = answers.iter().map(|answer| &answer.body).collect();
    assert_eq!(bodies.len(), 50, "every key has an outcome of its own");
    for pair in answers.chunks(2) {
        assert_eq!(pair[0].body, pair[1].body, "both requests of a key get its outcome");
    }
}

pub(super) async fn waiters_share_a_failure(scene: Scene<'_>) {
    let ask = scene.post(PLAIN);
    let owner = scene.running(&ask.clone().set(STATUS, "503")).await;
    let waiters = join_all((0..10).map(|_| ask.start())).await;
    scene.strangers_pass().await;
    scene.open();
    let owner = owner.answer().await;
    for waiter in answers(waiters).await {
        assert_eq!(waiter.status, 503, "who waited for a failed run gets its answer");
        assert_eq!(waiter.body, owner.body, "who waited for a failed run gets its body");
    }
    scene.ran(1, "a failure does not stampede");
    assert_eq!(ask.send().await.status, 200, "only a new request tries again");
    scene.ran(2, "only a new request tries again");
}
