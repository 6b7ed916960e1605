//! Messages that cannot be events become dead letters without a request.

use serde_json::Value;

use crate::harness::{JetStream, TestUpstream, WorkerSetup, cloud_event};

/// The dead letter of a message with these headers and this body. The handler must not get it.
async fn letter(headers: &[(&str, &str)], body: &str, flags: &[(&str, &str)]) -> Value {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let setup = WorkerSetup::new(&stream, &handler);
    let setup = flags.iter().fold(setup, |setup, (name, value)| setup.flag(name, value));
    let worker = setup.start().await;
    stream.publish_with(headers, body).await;
    stream.until_settled().await;
    assert_eq!(handler.count(), 0);
    worker.stop().await;
    let [letter] = &setup.listed().await[..] else { panic!("one letter") };
    letter.clone()
}

fn assert_letter(letter: &Value, reason: &str, words: &str) {
    assert_eq!(letter["reason"], reason, "{letter}");
    assert!(letter["error"].as_str().unwrap().contains(words), "{words:?}: {letter}");
}

#[tokio::test]
async fn a_message_without_an_id_is_a_dead_letter() {
    assert_letter(&letter(&[], "x", &[]).await, "invalid", "id");
}

#[tokio::test]
async fn an_id_of_ten_kilobytes_is_a_dead_letter() {
    let id = "i".repeat(10_000);
    assert_letter(&letter(&[("event_id", &id)], "x", &[]).await, "invalid", "");
}

#[tokio::test]
async fn a_payload_over_the_limit_is_a_dead_letter() {
    let body = "x".repeat(2000);
    let letter = letter(&[("event_id", "1")], &body, &[("--max-body", "1KiB")]).await;
    assert_letter(&letter, "invalid", "1024");
    assert_eq!(letter["body_bytes"], 2000);
}

#[tokio::test]
async fn data_that_is_not_the_json_it_claims_to_be_is_a_dead_letter() {
    assert_letter(&letter(&cloud_event("1"), "{\"half", &[]).await, "invalid", "JSON");
}

#[tokio::test]
async fn an_event_of_a_type_that_is_not_listed_is_a_dead_letter() {
    let letter = letter(&cloud_event("1"), "{}", &[("--type", "order.paid,order.sent")]).await;
    assert_letter(&letter, "unknown_type", "");
}

#[tokio::test]
async fn the_id_of_another_event_is_a_dead_letter() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let setup = WorkerSetup::new(&stream, &handler);
    let worker = setup.start().await;
    stream.publish("order-1").await;
    stream.until_settled().await;
    stream.publish_with(&cloud_event("order-1"), "{\"another\":1}").await;
    stream.until_settled().await;
    assert_eq!(handler.count(), 1);
    worker.stop().await;
    let [letter] = &setup.listed().await[..] else { panic!("one letter") };
    assert_letter(letter, "mismatch", "");
}

#[tokio::test]
async fn an_unlisted_type_can_stop_the_worker() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let setup = WorkerSetup::new(&stream, &handler).flag("--type", "order.paid");
    let mut worker = setup.flag("--unknown-type", "stop").start().await;
    stream.publish("order-1").await;
    assert_eq!(worker.wait_exit().await, Some(1));
    assert!(worker.stderr().contains("order.placed"), "{}", worker.stderr());
    assert_eq!(stream.open().await, 1, "the message is in the broker");
}
