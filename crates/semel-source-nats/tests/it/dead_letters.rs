//! Dead letters in a stream.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use semel_consumer::{
    Message,
    dead_letter::{DeadLetter, DeadLetterQueue, DeadLetterReason, DeadLetterSink},
};
use semel_core::{ErrorKind, KeyHash};
use semel_source_nats::NatsDeadLetters;
use serde_json::{Value, json};

use crate::common::{Broker, shared, unique};

fn letter(id: &str, attempts: u32) -> DeadLetter {
    let message = Message::new("orders.new", &b"\x00\xff payload"[..])
        .with_header("Nats-Msg-Id", "order-1")
        .with_header("Nats-Rollup", "all")
        .with_header("Nats-Expected-Last-Sequence", "77")
        .with_header("Tenant", "b")
        .with_header("Tenant", "a")
        .with_header("Binary", &b"\xff\r\n"[..])
        .with_id("order-1");
    DeadLetter {
        id: id.to_owned(),
        key: Some(KeyHash::from_bytes([7; 32])),
        event_id: Some("order-1".to_owned()),
        reason: DeadLetterReason::AttemptsExhausted,
        class: "card_declined".to_owned(),
        error: "no\nmoney".to_owned(),
        attempts,
        first_at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        last_at: SystemTime::now(),
        consumer: "billing".to_owned(),
        source: "nats ORDERS/billing".to_owned(),
        message: Arc::new(message),
    }
}

async fn created() -> (NatsDeadLetters, String) {
    let stream = unique("DEAD");
    let letters =
        NatsDeadLetters::connect(&format!("{}/{stream}?create=true", shared())).await.unwrap();
    (letters, stream)
}

fn ids(letters: &[DeadLetter]) -> Vec<&str> {
    letters.iter().map(|letter| letter.id.as_str()).collect()
}

fn headers(letter: &DeadLetter) -> Vec<(String, Vec<u8>)> {
    let headers = letter.message.headers.iter();
    let mut headers: Vec<_> = headers.map(|it| (it.name.clone(), it.value.to_vec())).collect();
    // The driver loses the order between names.
    headers.sort_by(|a, b| a.0.cmp(&b.0));
    headers
}

#[tokio::test]
async fn a_letter_is_read_back_without_a_change() {
    let (letters, stream) = created().await;
    letters.check().await.unwrap();
    assert_eq!(letters.name(), format!("nats {stream}"));
    let before = letter("6f2c0b1e-7d0a-8a5e-9f3a-0c1d2e3f4a5b", 5);
    letters.publish(&before).await.unwrap();
    let after = letters.get(&before.id).await.unwrap().unwrap();
    assert!(after.is_copy_of(&before));
    assert_eq!(after.message.body, before.message.body);
    assert_eq!(headers(&after), headers(&before));
    assert_eq!(after.message.message_id, before.message.message_id);
    assert_eq!(
        (after.key, after.reason, after.error.as_str()),
        (before.key, before.reason, "no\nmoney")
    );
    assert!(letters.get("another").await.unwrap().is_none());
}

#[tokio::test]
async fn a_later_letter_replaces_an_earlier_one_with_the_same_id() {
    let (letters, _) = created().await;
    let (first, second) = (letter("a", 5), letter("a", 6));
    letters.publish(&first).await.unwrap();
    letters.publish(&letter("b", 1)).await.unwrap();
    letters.publish(&first).await.unwrap();
    assert_eq!(
        letters.list(None, 10).await.unwrap().len(),
        2,
        "a repeated publish makes no second letter"
    );
    letters.publish(&second).await.unwrap();
    let listed = letters.list(None, 10).await.unwrap();
    assert_eq!(ids(&listed), ["b", "a"]);
    assert_eq!(listed[1].attempts, 6);

    assert!(!letters.remove(&first).await.unwrap(), "the event has failed again meanwhile");
    assert!(letters.remove(&second).await.unwrap());
    assert!(!letters.remove(&second).await.unwrap());
    assert_eq!(ids(&letters.list(None, 10).await.unwrap()), ["b"]);
}

#[tokio::test]
async fn letters_are_listed_in_pages() {
    let (letters, _) = created().await;
    // The id of a message without a key is made from its position, and may have any characters.
    let all = ["c", "a", "nats ORDERS/17", "x.y.*.>"];
    for id in all {
        letters.publish(&letter(id, 1)).await.unwrap();
    }
    let mut seen = Vec::new();
    loop {
        let page = letters.list(seen.last().map(String::as_str), 3).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page.into_iter().map(|letter| letter.id));
    }
    assert_eq!(seen, all);
    for id in all {
        assert_eq!(letters.get(id).await.unwrap().unwrap().id, id);
    }
    let error = letters.list(Some("gone"), 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn an_existing_stream_that_allows_rollups_will_do() {
    let broker = Broker::with_stream(json!({ "allow_rollup_hdrs": true })).await;
    let letters = NatsDeadLetters::from_client(broker.client.clone(), broker.stream.as_str())
        .connect()
        .await
        .unwrap();
    for attempts in 1..4 {
        letters.publish(&letter("a", attempts)).await.unwrap();
        letters.publish(&letter("b", attempts)).await.unwrap();
    }
    assert_eq!(broker.stored().await, 2);
    let listed = letters.list(None, 10).await.unwrap();
    assert_eq!((ids(&listed), listed[0].attempts), (vec!["a", "b"], 3));
    assert_eq!(
        headers(&listed[0]),
        headers(&letter("a", 3)),
        "the rollup header is not one of the letter"
    );
}

#[tokio::test]
async fn messages_that_are_no_letters_are_left_out() {
    let broker = Broker::with_stream(json!({ "max_msgs_per_subject": 1 })).await;
    let letters = NatsDeadLetters::from_client(broker.client.clone(), broker.stream.as_str())
        .connect()
        .await
        .unwrap();
    broker.publish("foreign", &[], "x").await;
    letters.publish(&letter("a", 1)).await.unwrap();
    assert_eq!(ids(&letters.list(None, 10).await.unwrap()), ["a"]);
}

#[tokio::test]
async fn a_stream_that_cannot_keep_letters_is_refused_with_the_fix() {
    let missing = unique("MISSING");
    let error = NatsDeadLetters::connect(&format!("{}/{missing}", shared())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("nats stream add") && text.contains("?create=true"), "{text}");
    for (fix, query, change) in [
        ("max_msgs_per_subject to 1", "", json!({})),
        ("?subject=", "?subject=elsewhere", json!({ "max_msgs_per_subject": 1 })),
        ("storage file", "", json!({ "max_msgs_per_subject": 1, "storage": "memory" })),
        ("retention limits", "", json!({ "max_msgs_per_subject": 1, "retention": "workqueue" })),
        (
            "discard_new_per_subject",
            "",
            json!({ "max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": true }),
        ),
    ] {
        let broker = Broker::with_stream(change).await;
        let url = format!("{}/{}{query}", broker.url, broker.stream);
        let error = NatsDeadLetters::connect(&url).await.unwrap_err();
        assert!(error.to_string().contains(fix), "{fix}: {error}");
    }
}

#[tokio::test]
async fn a_changed_stream_is_noticed_by_the_check() {
    let (letters, stream) = created().await;
    let broker = Broker::with_stream(json!({})).await;
    let info = broker.api(&format!("STREAM.INFO.{stream}"), json!({})).await;
    let mut config = info["config"].clone();
    config["max_msgs_per_subject"] = json!(-1);
    let updated = broker.api(&format!("STREAM.UPDATE.{stream}"), config).await;
    assert_eq!(updated["error"], Value::Null, "{updated}");
    let error = letters.check().await.unwrap_err();
    assert!(error.to_string().contains("max_msgs_per_subject"), "{error}");
    broker.api(&format!("STREAM.DELETE.{stream}"), json!({})).await;
    let error = letters.check().await.unwrap_err();
    assert!(error.to_string().contains("nats stream add"), "{error}");
    assert!(letters.publish(&letter("a", 1)).await.is_err());
}

#[tokio::test]
async fn a_full_stream_refuses_letters() {
    let limit = json!({ "max_msgs_per_subject": 1, "max_msgs": 1, "discard": "new" });
    let broker = Broker::with_stream(limit).await;
    let letters = NatsDeadLetters::from_client(broker.client.clone(), broker.stream.as_str())
        .connect()
        .await
        .unwrap();
    letters.publish(&letter("a", 1)).await.unwrap();
    let error = letters.publish(&letter("b", 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
}
