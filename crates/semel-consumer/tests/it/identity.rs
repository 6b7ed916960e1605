//! Which messages are events, which are copies of one event, and what happens to the others.

use semel_consumer::{
    Message, Mode, OnDeadLetter, Router,
    dead_letter::{DeadLetterQueue, DeadLetterReason, REDRIVEN_FROM_HEADER},
    handler_fn,
    pipeline::{OnMismatch, UnknownType},
};
use semel_core::{KeyStrategy, WorkError};
use serde_json::Value;

use crate::fixture::{Scene, message, run};

#[tokio::test]
async fn a_copy_is_acknowledged_without_running() {
    for mode in [Mode::RecordOutcome, Mode::TrackIds] {
        let scene = Scene::new([message("a"), message("b")]);
        scene.source.duplicate(1);
        run(scene.builder().mode(mode).concurrency(1).handler(scene.succeeds())).await;
        assert_eq!((scene.runs(), scene.acks()), (2, 3), "{mode:?}");
    }
}

#[tokio::test]
async fn a_later_consumer_finds_what_an_earlier_one_recorded() {
    let scene = Scene::new([message("a")]);
    run(scene.builder().handler(scene.succeeds())).await;
    scene.source.publish(message("a"));
    run(scene.builder().handler(scene.succeeds())).await;
    assert_eq!((scene.runs(), scene.acks()), (1, 2));
}

#[tokio::test]
async fn a_message_that_can_be_no_event_is_a_dead_letter_that_says_why() {
    let too_long = "x".repeat(10 * 1024);
    let cases = [
        (Message::new("t", "{}"), "no id"),
        (message(&too_long), "are allowed"),
        (Message::new("t", vec![b' '; 2000]).with_id("big"), "2000 bytes"),
        (
            Message::new("t", "[]").with_header("content-type", "application/cloudevents+json"),
            "CloudEvent",
        ),
        (
            Message::new("t", "{").with_id("bad").with_header("content-type", "application/json"),
            "not JSON",
        ),
    ];
    for (message, why) in cases {
        let scene = Scene::new([message.clone()]);
        run(scene.builder().max_bytes(1000).check_json().handler(scene.succeeds())).await;
        let letters = scene.letters();
        assert_eq!((scene.runs(), letters.len()), (0, 1), "{why}");
        assert_eq!(letters[0].reason, DeadLetterReason::Invalid, "{why}");
        assert!(letters[0].error.contains(why), "{}", letters[0].error);
        assert_eq!(letters[0].message.body, message.body, "the payload is untouched");
    }
}

#[tokio::test]
async fn data_that_the_handler_cannot_read_is_a_dead_letter() {
    let scene = Scene::new([Message::new("t", "not JSON").with_id("a")]);
    run(scene.builder().handler(scene.succeeds())).await;
    let letters = scene.letters();
    assert_eq!((scene.runs(), letters[0].class.as_str()), (0, "validation"));
    assert!(letters[0].error.contains("not JSON"), "{}", letters[0].error);
}

#[tokio::test]
async fn another_payload_under_the_same_id_follows_the_policy() {
    let other = || Message::new("orders", r#"{"cents":1}"#).with_id("a");
    for (policy, runs, letters) in
        [(OnMismatch::DeadLetter, 1, 1), (OnMismatch::Skip, 1, 0), (OnMismatch::Ignore, 1, 0)]
    {
        for mode in [Mode::RecordOutcome, Mode::TrackIds] {
            let scene = Scene::new([message("a"), other()]);
            let builder = scene.builder().mode(mode).on_mismatch(policy).concurrency(1);
            run(builder.handler(scene.succeeds())).await;
            assert_eq!(
                (scene.runs(), scene.letters().len()),
                (runs, letters),
                "{policy:?} {mode:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_mismatch_does_not_replace_the_dead_letter_of_the_event_that_failed() {
    let other = Message::new("orders", r#"{"cents":1}"#).with_id("a");
    let scene = Scene::new([message("a"), other]);
    let fails = scene.handler(|_, _| Err(WorkError::failure("no_stock", "sold out")));
    run(scene.builder().concurrency(1).handler(fails)).await;
    let mut reasons: Vec<_> = scene.letters().iter().map(|it| it.reason.as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["failed", "mismatch"]);
}

#[tokio::test]
async fn an_event_that_is_refused_before_its_claim_does_not_replace_another_letter() {
    let keyed = |message: Message| message.with_ordering_key("k");
    let other = Message::new("orders", r#"{"cents":1}"#).with_id("a");
    let scene = Scene::new([keyed(message("a")), keyed(other)]);
    let fails = scene.handler(|_, _| Err(WorkError::failure("no_stock", "sold out")));
    run(scene.builder().on_dead_letter(OnDeadLetter::Park).handler(fails)).await;
    let mut reasons: Vec<_> = scene.letters().iter().map(|it| it.reason.as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["failed", "parked"]);
}

#[tokio::test]
async fn a_redriven_copy_of_an_event_that_is_still_recorded_as_failed_is_a_dead_letter_again() {
    let scene = Scene::new([message("a")]);
    let fails = || scene.handler(|_, _| Err(WorkError::failure("no_stock", "sold out")));
    run(scene.builder().handler(fails())).await;
    let id = scene.letters()[0].id.clone();
    DeadLetterQueue::remove(&scene.dead_letters, &scene.letters()[0]).await.unwrap();
    // Redriven with the store of another consumer.
    scene.source.publish(message("a").with_header(REDRIVEN_FROM_HEADER, id.clone()));
    run(scene.builder().handler(fails())).await;
    assert_eq!((scene.runs(), scene.letters()[0].id.as_str()), (1, id.as_str()));
}

#[tokio::test]
async fn a_composite_key_keeps_tenants_apart() {
    let of = |tenant: &str| message("a").with_header("tenant", tenant.to_owned());
    let scene = Scene::new([of("x"), of("y"), of("x")]);
    let key = KeyStrategy::join([KeyStrategy::message_id(), KeyStrategy::metadata("tenant")]);
    run(scene.builder().key(key).concurrency(1).handler(scene.succeeds())).await;
    assert_eq!(scene.runs(), 2);
}

#[tokio::test]
async fn events_are_routed_by_type_and_unknown_types_follow_the_policy() {
    let of =
        |id: &str, event_type: &str| message(id).with_header("event_type", event_type.to_owned());
    for policy in [UnknownType::DeadLetter, UnknownType::Skip, UnknownType::Stop] {
        let scene = Scene::new([of("1", "Known"), of("2", "Unknown")]);
        let router = Router::new().on("Known", handler_fn(scene.succeeds()));
        let builder = scene.builder().unknown_type(policy).concurrency(1).handle_with(router);
        let ended = builder.build().unwrap().run().await;
        assert_eq!(scene.runs(), 1, "{policy:?}");
        match policy {
            UnknownType::DeadLetter => {
                assert_eq!(scene.letters()[0].reason, DeadLetterReason::UnknownType);
            }
            UnknownType::Skip => assert_eq!((scene.letters().len(), scene.acks()), (0, 2)),
            UnknownType::Stop => {
                let error = ended.unwrap_err().to_string();
                assert!(error.contains("Unknown") && error.contains("policy"), "{error}");
                assert_eq!(scene.source.open(), 1, "the event stays in the broker");
            }
        }
    }
}

#[tokio::test]
async fn the_recorded_outcome_is_sent_to_every_copy_that_asks_for_a_reply() {
    let asking = Message { reply_to: Some("inbox.7".into()), ..message("a") };
    let scene = Scene::new([asking.clone(), asking]);
    run(scene.builder().concurrency(1).handler(scene.succeeds())).await;
    let replies = scene.source.replies();
    assert_eq!(scene.runs(), 1);
    assert_eq!(replies.len(), 2);
    assert!(
        replies
            .iter()
            .all(|(to, outcome)| to == "inbox.7" && outcome.decode::<Value>().unwrap() == "done")
    );
}

#[tokio::test]
async fn a_message_that_the_broker_gave_up_on_is_a_dead_letter_unless_it_was_handled() {
    let given_up = || Message { given_up: true, ..message("a") };
    let scene = Scene::new([given_up()]);
    run(scene.builder().handler(scene.succeeds())).await;
    assert_eq!((scene.runs(), scene.letters()[0].reason), (0, DeadLetterReason::AttemptsExhausted));

    let handled = Scene::new([message("a"), given_up()]);
    run(handled.builder().concurrency(1).handler(handled.succeeds())).await;
    assert_eq!((handled.runs(), handled.letters().len(), handled.acks()), (1, 0, 2));
}

#[tokio::test]
async fn a_final_failure_is_one_dead_letter_and_its_copies_do_not_run() {
    let scene = Scene::new([message("a"), message("a")]);
    let fails = scene.handler(|_, _| Err(WorkError::failure("no_stock", "sold out")));
    run(scene.builder().concurrency(1).handler(fails)).await;
    let letters = scene.letters();
    assert_eq!((scene.runs(), letters.len()), (1, 1));
    assert_eq!((letters[0].class.as_str(), letters[0].attempts), ("no_stock", 1));
    assert_eq!(letters[0].event_id.as_deref(), Some("a"));
}
