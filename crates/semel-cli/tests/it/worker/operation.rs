//! What operators rely on: draining, readiness, metrics, settings in a file.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use crate::harness::{
    JetStream, Reserved, ScriptedReply, TestRequest, TestUpstream, WorkerSetup, request_to, until,
};

#[tokio::test]
async fn sigterm_finishes_what_runs_and_gives_back_what_waits() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::gated().await);
    let setup = WorkerSetup::new(&stream, &handler);
    let mut worker = setup.flag("--concurrency", "1").flag("--admin", "127.0.0.1:0").start().await;
    let admin = worker.admin().await;
    stream.publish("order-1").await;
    stream.publish("order-2").await;
    until("the handler has an event", async || handler.count() == 1).await;
    assert_eq!(request_to(admin, TestRequest::get("/readyz")).await.status, 200);
    worker.sigterm();
    until("it is not ready", async || {
        let ready = request_to(admin, TestRequest::get("/readyz")).await;
        (ready.status, &*ready.text()) == (503, "shutting down\n")
    })
    .await;
    assert_eq!(request_to(admin, TestRequest::get("/healthz")).await.status, 200);
    handler.open_gate();
    assert_eq!(worker.wait_exit().await, Some(0), "{}", worker.stderr());
    assert_eq!(handler.count(), 1, "nothing new was begun");
    assert_eq!(stream.open().await, 1, "the other message is in the broker");
}

#[tokio::test]
async fn a_drain_that_takes_too_long_fails_and_loses_nothing() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::gated().await);
    let setup = WorkerSetup::new(&stream, &handler).config("shutdown_grace = '1s'");
    let mut worker = setup.start().await;
    stream.publish("order-1").await;
    until("the handler has an event", async || handler.count() == 1).await;
    worker.sigterm();
    assert_eq!(worker.wait_exit().await, Some(1));
    assert!(worker.stderr().contains("events that were cut off: 1"), "{}", worker.stderr());
    assert_eq!(stream.open().await, 1);
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let stream = JetStream::new().await;
    let handler = TestUpstream::start(|request| match request.header("ce-id") {
        Some("bad") => ScriptedReply::status(422, ""),
        _ => ScriptedReply::ok("done"),
    })
    .await;
    let setup = WorkerSetup::new(&stream, &handler).flag("--name", "billing");
    let mut worker = setup.flag("--admin", "127.0.0.1:0").start().await;
    let admin = worker.admin().await;
    for id in ["good", "good", "bad"] {
        stream.publish(id).await;
    }
    stream.until_settled().await;
    // A delivery is counted after the broker has confirmed.
    for line in [
        "consumer_settled_total{consumer=\"billing\",outcome=\"completed\"} 1",
        "consumer_settled_total{consumer=\"billing\",outcome=\"duplicate\"} 1",
        "consumer_settled_total{consumer=\"billing\",outcome=\"failed\"} 1",
        "idempotency_dead_letters_total{reason=\"failed\"} 1",
        "semel_worker_requests_total{result=\"success\"} 1",
        "semel_worker_requests_total{result=\"permanent\"} 1",
        "semel_worker_requests_total{result=\"timeout\"} 0",
        "semel_worker_reloads_total{result=\"ok\"} 0",
        "consumer_breaker_state{consumer=\"billing\"} 0",
        "consumer_handler_seconds_count{consumer=\"billing\"} 2",
        "consumer_handler_seconds_bucket{consumer=\"billing\",le=\"120\"} 2",
    ] {
        until(line, async || {
            let text = request_to(admin, TestRequest::get("/metrics")).await.text();
            text.lines().any(|shown| shown == line)
        })
        .await;
    }
    worker.stop().await;
}

#[tokio::test]
async fn everything_can_be_set_in_the_file_and_overridden() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let setup = WorkerSetup::bare().config(&format!(
        "store = 'memory:'\n[worker]\nsource = '{}'\nhandler = 'http://{}/a'\ndead_letter = 'file:letters'\n\
         types = ['order.placed']\nunknown_type = 'skip'\npermanent_status = [404]\nretention = '25h'\n\
         max_attempts = 3\nmode = 'track-ids'\norder = 'relaxed'\nmax_in_flight = 100\n",
        stream.url(),
        handler.address
    ));
    let worker =
        setup.variable("SEMEL_HANDLER", format!("http://{}/b", handler.address)).start().await;
    stream.publish_with(&[("event_type", "other"), ("event_id", "1")], "x").await;
    stream.publish("order-1").await;
    stream.until_settled().await;
    assert_eq!(handler.only().target, "/b");
    worker.stop().await;
}

/// A worker starts without its handler, so that both can be deployed in any order.
#[tokio::test]
async fn a_handler_that_cannot_be_reached_is_waited_for() {
    let (stream, reserved) = (JetStream::new().await, Reserved::new());
    let handler = format!("http://{}/events", reserved.address());
    // A worker waits for half of the timeout within one attempt.
    let setup = WorkerSetup::bare()
        .flag("--source", &stream.url())
        .flag("--handler", &handler)
        .flag("--handler-timeout", "2s")
        .flag("--dead-letter", "file:dead-letters")
        .flag("--ready-needs-upstreams=true", "--store=memory:")
        .flag("--admin", "127.0.0.1:0");
    let mut worker = setup.start().await;
    let admin = worker.admin().await;
    stream.publish("order-1").await;
    until("the attempt fails", async || worker.stderr().contains("attempt failed")).await;
    let ready = request_to(admin, TestRequest::get("/readyz")).await;
    assert_eq!((ready.status, &*ready.text()), (503, "the handler cannot be reached\n"));
    let handler = reserved.start(|_| ScriptedReply::ok("done"));
    stream.until_settled().await;
    assert_eq!(handler.count(), 1);
    assert!(setup.letter_files().is_empty());
    worker.stop().await;
}

#[tokio::test]
async fn a_short_restart_of_the_handler_uses_up_no_attempts() {
    let (stream, reserved) = (JetStream::new().await, Reserved::new());
    let handler = format!("http://{}/events", reserved.address());
    let setup = WorkerSetup::bare()
        .flag("--source", &stream.url())
        .flag("--handler", &handler)
        .flag("--dead-letter", "file:dead-letters");
    let worker = setup.start().await;
    stream.publish("order-1").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let handler = reserved.start(|_| ScriptedReply::ok("done"));
    stream.until_settled().await;
    assert_eq!(handler.only().attempt(), Some("1"));
    worker.stop().await;
}

/// The message waits longer for its handler than the consumer waits for an acknowledgement.
#[tokio::test]
async fn a_handler_may_take_longer_than_the_ack_wait() {
    let stream = JetStream::with_ack_wait(Duration::from_secs(2)).await;
    let handler = TestUpstream::gated().await;
    let worker = WorkerSetup::new(&stream, &handler).start().await;
    stream.publish("order-1").await;
    until("the handler has the event", async || handler.count() == 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    handler.open_gate();
    stream.until_settled().await;
    assert_eq!(handler.count(), 1);
    worker.stop().await;
}

#[tokio::test]
async fn seal_keys_are_replaced_while_the_worker_runs() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let setup = WorkerSetup::new(&stream, &handler).flag("--seal-keys", "keys");
    let file = setup.folder().join("keys");
    let line = |name: &str| semel::SealKey::random(name).unwrap().line().to_string();
    let old = line("old");
    let write = |text: &str| {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    };
    write(&old);
    let worker = setup.start().await;
    assert!(worker.stderr().contains("sealing with key old"), "{}", worker.stderr());
    stream.publish("order-1").await;
    stream.until_settled().await;
    write(&format!("{}\n{old}", line("new")));
    worker.sighup();
    let now = "seal keys were read again: sealing with key new; these open: new, old";
    until("the keys are replaced", async || worker.stderr().contains(now)).await;
    // The outcome that the old key has sealed is still read.
    stream.publish("order-1").await;
    stream.until_settled().await;
    assert_eq!(handler.count(), 1);
    worker.stop().await;
}

#[tokio::test]
async fn a_handler_that_keeps_failing_pauses_the_worker() {
    let stream = JetStream::new().await;
    let handler = TestUpstream::start(|_| ScriptedReply::status(500, "")).await;
    let setup = WorkerSetup::new(&stream, &handler).flag("--admin", "127.0.0.1:0");
    let mut worker = setup.start().await;
    let admin = worker.admin().await;
    for number in 0..30 {
        stream.publish(&format!("order-{number}")).await;
    }
    until("it is not ready", async || {
        let ready = request_to(admin, TestRequest::get("/readyz")).await;
        ready.status == 503 && ready.text().contains("circuit breaker is open")
    })
    .await;
    assert!(setup.letter_files().is_empty(), "an outage makes no dead letters");
    worker.stop().await;
}

#[tokio::test]
async fn two_workers_share_a_consumer_and_its_store() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let store = format!("{}/semel-worker-tests?prefix={}", stream.server(), stream.stream);
    let setup = WorkerSetup::new(&stream, &handler).flag("--store", &store);
    let setup = setup.flag("--namespace", "shop");
    let (one, other) = (setup.start().await, setup.start().await);
    for _ in 0..2 {
        for number in 0..40 {
            stream.publish(&format!("order-{number}")).await;
        }
    }
    stream.until_settled().await;
    assert_eq!(handler.count(), 40);
    one.stop().await;
    other.stop().await;
}
