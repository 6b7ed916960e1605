//! Each event reaches the handler once, or again after a failure.

use std::time::Duration;

use tokio::time::Instant;

use crate::harness::{JetStream, ReceivedRequest, ScriptedReply, TestUpstream, WorkerSetup, until};

#[tokio::test]
async fn an_event_is_posted_with_its_attributes_and_a_key() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let worker = WorkerSetup::new(&stream, &handler).start().await;
    stream.publish("order 1").await;
    stream.until_settled().await;
    let request = handler.only();
    assert_eq!((&*request.method, &*request.target), ("POST", "/events"));
    assert_eq!(request.body, b"{\"order\":\"order 1\"}");
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", "order%201"),
        ("ce-source", "/shop"),
        ("ce-type", "order.placed"),
        ("content-type", "application/json"),
        ("semel-attempt", "1"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    assert!(request.key().is_some_and(|key| key.len() >= 32), "{request:?}");
    worker.stop().await;
}

#[tokio::test]
async fn an_event_without_data_is_posted_with_its_length() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    // A chart that leaves the list of types empty.
    let setup = WorkerSetup::new(&stream, &handler).variable("SEMEL_TYPES", "");
    let worker = setup.start().await;
    stream.publish_with(&[("event_id", "1"), ("event_type", "ping")], "").await;
    stream.until_settled().await;
    assert_eq!(handler.only().all("content-length"), ["0"]);
    worker.stop().await;
}

#[tokio::test]
async fn a_duplicate_is_acknowledged_and_not_run() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let worker = WorkerSetup::new(&stream, &handler).start().await;
    for _ in 0..3 {
        stream.publish("order-1").await;
    }
    stream.until_settled().await;
    assert_eq!(handler.count(), 1);
    worker.stop().await;
}

/// Also by a worker that was not there when the event was handled.
#[tokio::test]
async fn a_duplicate_after_a_restart_is_not_run() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let setup = WorkerSetup::new(&stream, &handler);
    let worker = setup.start().await;
    stream.publish("order-1").await;
    stream.until_settled().await;
    worker.stop().await;
    let worker = setup.start().await;
    stream.publish("order-1").await;
    stream.until_settled().await;
    assert_eq!(handler.count(), 1);
    worker.stop().await;
}

#[tokio::test]
async fn a_refused_event_is_a_dead_letter_at_once() {
    let stream = JetStream::new().await;
    let handler = TestUpstream::start(|_| ScriptedReply::status(422, "secret canary")).await;
    let setup = WorkerSetup::new(&stream, &handler);
    let worker = setup.start().await;
    stream.publish("order-1").await;
    // A copy of an event that failed for good does not run either.
    stream.publish("order-1").await;
    stream.until_settled().await;
    assert_eq!(handler.count(), 1);
    let [letter] = &setup.listed().await[..] else { panic!("one letter") };
    assert_eq!((&letter["reason"], &letter["class"]), (&"failed".into(), &"http_422".into()));
    assert_eq!((&letter["attempts"], &letter["event_id"]), (&1.into(), &"/shop order-1".into()));
    assert!(letter["error"].as_str().unwrap().contains("422"), "{letter}");
    assert!(!worker.stderr().contains("canary") && !letter.to_string().contains("canary"));
    worker.stop().await;
}

#[tokio::test]
async fn a_busy_handler_is_asked_again_after_the_pause_that_it_names() {
    let stream = JetStream::new().await;
    let handler = TestUpstream::start(|request| match request.number {
        1 => ScriptedReply::with(503, "Retry-After: 2\r\n", ""),
        _ => ScriptedReply::ok("done"),
    })
    .await;
    let setup = WorkerSetup::new(&stream, &handler);
    let worker = setup.start().await;
    let started_at = Instant::now();
    stream.publish("order-1").await;
    stream.until_settled().await;
    assert!(started_at.elapsed() >= Duration::from_secs(2), "{:?}", started_at.elapsed());
    let [first, second] = &handler.received()[..] else { panic!("{:?}", handler.received()) };
    assert_eq!((first.attempt(), second.attempt()), (Some("1"), Some("2")));
    assert_eq!(first.key(), second.key());
    assert!(setup.letter_files().is_empty());
    worker.stop().await;
}

#[tokio::test]
async fn an_event_that_keeps_failing_is_a_dead_letter_after_its_attempts() {
    let stream = JetStream::new().await;
    let handler = TestUpstream::start(|_| ScriptedReply::status(500, "")).await;
    let setup = WorkerSetup::new(&stream, &handler).flag("--max-attempts", "2");
    let worker = setup.start().await;
    stream.publish("order-1").await;
    stream.until_settled().await;
    assert_eq!(handler.count(), 2);
    let [letter] = &setup.listed().await[..] else { panic!("one letter") };
    assert_eq!((&letter["reason"], &letter["attempts"]), (&"attempts_exhausted".into(), &2.into()));
    worker.stop().await;
}

/// What the process had received comes again after the consumer's ack wait; its key is free after the lease.
#[tokio::test]
async fn an_event_of_a_killed_worker_is_finished_by_the_next() {
    let stream = JetStream::with_ack_wait(Duration::from_secs(2)).await;
    let handler = TestUpstream::start(|request: &ReceivedRequest| match request.number {
        1 => ScriptedReply::nothing().stall(),
        _ => ScriptedReply::ok("done"),
    })
    .await;
    let setup = WorkerSetup::new(&stream, &handler).flag("--lease", "1s");
    let worker = setup.start().await;
    stream.publish("order-1").await;
    until("the handler has the event", async || handler.count() == 1).await;
    worker.sigkill().await;
    let worker = setup.start().await;
    stream.until_settled().await;
    let [first, second] = &handler.received()[..] else { panic!("{:?}", handler.received()) };
    assert_eq!(first.key(), second.key());
    assert_eq!(second.attempt(), Some("2"));
    worker.stop().await;
}

#[tokio::test]
async fn events_with_one_ordering_key_stay_in_order_while_one_is_tried_again() {
    let stream = JetStream::new().await;
    let handler = TestUpstream::start(|request| match request.number {
        1 => ScriptedReply::status(503, ""),
        _ => ScriptedReply::ok("done"),
    })
    .await;
    let worker = WorkerSetup::new(&stream, &handler).start().await;
    for id in ["1", "2", "3"] {
        let event = crate::harness::cloud_event(id);
        let headers: Vec<_> =
            event.into_iter().chain([("ce-partitionkey", "customer-7")]).collect();
        stream.publish_with(&headers, "{}").await;
    }
    stream.until_settled().await;
    let ids: Vec<_> = handler
        .received()
        .iter()
        .map(|it| it.header("ce-id").unwrap_or_default().to_owned())
        .collect();
    assert_eq!(ids, ["1", "1", "2", "3"]);
    worker.stop().await;
}
