//! `semel worker` and `semel dead-letters` over Kafka.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use semel_servers::needed;

use crate::harness::{KafkaTopic, Reserved, ScriptedReply, TestUpstream, WorkerSetup, until};

/// A worker on a store that other processes may use at the same time, with dead letters in a topic.
pub(super) fn shared(topic: &KafkaTopic, handler: &TestUpstream) -> WorkerSetup {
    let server = needed("SEMEL_TEST_NATS_URL");
    let store = format!("{server}/semel-worker-tests?prefix={}", topic.name);
    WorkerSetup::from(&topic.url(), handler)
        .flag("--store", &store)
        .flag("--namespace", "shop")
        .flag("--dead-letter", &topic.url_of(&dead(topic), "?create=true"))
}

/// The topic of the dead letters.
pub(super) fn dead(topic: &KafkaTopic) -> String {
    format!("{}-dead", topic.name)
}

#[tokio::test]
async fn an_event_is_handled_once_and_its_copy_is_acknowledged() {
    let (topic, handler) = (KafkaTopic::new().await, TestUpstream::counting().await);
    let setup = WorkerSetup::from(&topic.url(), &handler);
    let worker = setup.start().await;
    topic.publish("order-1").await;
    topic.publish("order-1").await;
    topic.until_settled().await;
    let request = handler.only();
    assert_eq!(request.body, b"{\"order\":\"order-1\"}");
    for (name, value) in [
        ("ce-id", "order-1"),
        ("ce-source", "/shop"),
        ("ce-type", "order.placed"),
        ("content-type", "application/json"),
        ("semel-attempt", "1"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    worker.stop().await;
    let worker = setup.start().await;
    topic.publish("order-1").await;
    topic.publish("order-2").await;
    topic.until_settled().await;
    assert_eq!(handler.count(), 2, "the next worker knows the first event");
    worker.stop().await;
}

#[tokio::test]
async fn a_dead_letter_in_a_topic_is_listed_shown_and_redriven() {
    let topic = KafkaTopic::new().await;
    let repaired = Arc::new(AtomicBool::new(false));
    let is_repaired = repaired.clone();
    let handler = TestUpstream::start(move |_| match is_repaired.load(SeqCst) {
        true => ScriptedReply::ok("done"),
        false => ScriptedReply::status(422, ""),
    })
    .await;
    let setup = shared(&topic, &handler);
    let worker = setup.start().await;
    topic.publish("order-1").await;
    topic.publish("order-2").await;
    topic.until_settled().await;

    let headers = topic.first_headers(&dead(&topic)).await;
    let reason = headers.iter().find(|(name, _)| name == "Semel-Dead-Letter-Reason");
    assert_eq!(reason.map(|(_, reason)| reason.as_str()), Some("failed"), "{headers:?}");
    let letters = setup.listed().await;
    assert_eq!(letters.len(), 2);
    let letter = letters.iter().find(|letter| letter["event_id"] == "/shop order-1").unwrap();
    assert_eq!((&letter["reason"], &letter["class"]), (&"failed".into(), &"http_422".into()));
    assert_eq!(letter["topic"], topic.name.as_str());
    let id = letter["id"].as_str().unwrap();
    let show = setup.dead_letters(&["show", id]).await;
    assert!(show.stdout.contains("{\"order\":\"order-1\"}"), "{show:?}");

    repaired.store(true, SeqCst);
    let ended = setup.dead_letters(&["redrive", id, "--reason", "repaired, INC-7"]).await;
    assert_eq!(
        (ended.code, ended.stdout),
        (Some(0), format!("redriven: {id}\n")),
        "{}",
        ended.stderr
    );
    until("the handler has the event again", async || handler.count() == 3).await;
    topic.until_settled().await;
    let requests = handler.received();
    assert_eq!(requests[2].body, b"{\"order\":\"order-1\"}");
    assert_eq!(requests[2].key(), Some(id), "a redriven event has the same downstream key");
    let [left] = &setup.listed().await[..] else { panic!("the other letter") };
    let left = left["id"].as_str().unwrap();
    let ended = setup.dead_letters(&["discard", left, "--reason", "test order"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(setup.listed().await.is_empty());
    worker.stop().await;
    assert_eq!(handler.count(), 3);
}

#[tokio::test]
async fn what_is_missing_is_named_before_the_first_record() {
    let (topic, handler) = (KafkaTopic::new().await, TestUpstream::counting().await);
    topic.publish("order-1").await;
    let setup = WorkerSetup::from(&topic.url(), &handler);
    let missing = format!("{}-missing", topic.name);
    let nothing = Reserved::new().address();
    for (flag, url, code, words) in [
        (
            "--source",
            topic.url_of(&missing, "?group=g"),
            1,
            &["there is no topic", "-missing", "make it", "(--source)"][..],
        ),
        (
            "--source",
            topic.url_of(&topic.name, ""),
            2,
            &["--source: ", "names no group", "?group="],
        ),
        ("--source", topic.url_of("", "?group=g"), 2, &["--source: ", "/TOPIC"]),
        ("--source", topic.url_of("t", "?group=g&windo=1"), 2, &["--source: ", "group-protocol"]),
        ("--source", topic.url_of("t", "?group=g&acks=0"), 2, &["--source: ", "semel sets acks"]),
        (
            "--source",
            topic.url_of("t", "?group=g&no.such.setting=1"),
            2,
            &["--source: ", "\"no.such.setting\""],
        ),
        (
            "--source",
            format!("kafka://u:canary@{nothing}/t?group=g"),
            1,
            &["no broker answers", "check the addresses", "(--source)"],
        ),
        (
            "--dead-letter",
            topic.url_of(&missing, ""),
            1,
            &["there is no topic", "kafka-topics --create", "?create=true", "(--dead-letter)"],
        ),
        (
            "--dead-letter",
            topic.url_of("t", "?create=yes"),
            2,
            &["--dead-letter: ", "true or false"],
        ),
    ] {
        let ended = setup.clone().flag(flag, &url).run().await;
        ended.assert_stderr(&[code], words);
        assert!(!ended.stderr.contains("canary"), "{}", ended.stderr);
    }
    assert_eq!(handler.count(), 0, "nothing was consumed");
}

#[tokio::test]
async fn operator_commands_create_no_topic() {
    let (topic, handler) = (KafkaTopic::new().await, TestUpstream::counting().await);
    let setup = shared(&topic, &handler);
    for _ in 0..2 {
        let words = ["there is no topic", "(--dead-letter)"];
        setup.dead_letters(&["list"]).await.assert_stderr(&[1], &words);
    }
    assert!(!topic.exists(&dead(&topic)));
}
