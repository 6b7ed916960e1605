//! Dead letters in a topic.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rdkafka::{Offset, TopicPartitionList, admin::AdminOptions};
use semel_consumer::{
    Message,
    dead_letter::{DeadLetter, DeadLetterQueue, DeadLetterReason, DeadLetterSink},
};
use semel_core::{ErrorKind, KeyHash};
use semel_source_kafka::KafkaDeadLetters;

use crate::common::{TestTopic, shared, unique, until};

fn letter(id: &str, attempts: u32) -> DeadLetter {
    let message = Message::new("orders", &b"\x00\xff payload"[..])
        .with_header("Message-Id", "order-1")
        .with_header("Tenant", "b")
        .with_header("Tenant", "a")
        .with_header("Binary", &b"\xff\r\n"[..])
        .with_id("order-1")
        .with_record_key(&b"\xff\0"[..])
        .with_ordering_key("hex:ff00");
    let published_at = Some(UNIX_EPOCH + Duration::from_millis(1_700_000_000_123));
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
        source: "kafka orders/billing".to_owned(),
        message: Arc::new(Message { published_at, position: "orders/0/7".into(), ..message }),
    }
}

/// Dead letters in a topic of their own, with two connections: one writes, and the other reads.
async fn created() -> (KafkaDeadLetters, KafkaDeadLetters, String) {
    let topic = unique("dead");
    let url = format!("kafka://{}/{topic}", shared());
    let letters = KafkaDeadLetters::connect(&format!("{url}?create=true")).await.unwrap();
    (letters, KafkaDeadLetters::connect(&url).await.unwrap(), topic)
}

fn ids(letters: &[DeadLetter]) -> Vec<&str> {
    letters.iter().map(|letter| letter.id.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_read_back_without_a_change() {
    let (sink, letters, topic) = created().await;
    sink.check().await.unwrap();
    assert_eq!(sink.name(), format!("kafka {topic}"));
    let before = letter("6f2c0b1e-7d0a-8a5e-9f3a-0c1d2e3f4a5b", 5);
    sink.publish(&before).await.unwrap();
    let after = letters.get(&before.id).await.unwrap().unwrap();
    assert!(after.is_copy_of(&before));
    assert_eq!(after.message.body, before.message.body);
    assert_eq!(after.message.headers, before.message.headers);
    assert_eq!(after.message.message_id, before.message.message_id);
    assert_eq!(after.message.ordering_key, before.message.ordering_key);
    assert_eq!(after.message.record_key, before.message.record_key);
    assert_eq!(after.message.published_at, before.message.published_at);
    assert_eq!(
        (after.key, after.reason, after.error.as_str()),
        (before.key, before.reason, "no\nmoney")
    );
    assert!(letters.get("another").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_letter_of_a_tombstone_is_not_its_removal() {
    let (sink, letters, _) = created().await;
    let original = letter("t", 1);
    let message =
        Message { body: "".into(), is_tombstone: true, ..original.message.as_ref().clone() };
    sink.publish(&DeadLetter { message: Arc::new(message), ..original }).await.unwrap();
    let kept = letters.get("t").await.unwrap().unwrap();
    assert!(kept.message.is_tombstone);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_letter_replaces_an_earlier_one_with_the_same_id() {
    let (sink, letters, _) = created().await;
    let (first, other, second) = (letter("a", 5), letter("b", 1), letter("a", 6));
    for published in [&first, &other, &first] {
        sink.publish(published).await.unwrap();
    }
    assert_eq!(ids(&letters.list(None, 10).await.unwrap()), ["a", "b"]);
    sink.publish(&second).await.unwrap();
    let listed = letters.list(None, 10).await.unwrap();
    assert_eq!(ids(&listed), ["b", "a"]);
    assert_eq!(listed[1].attempts, 6);

    assert!(!letters.remove(&first).await.unwrap(), "the event has failed again meanwhile");
    assert!(letters.remove(&second).await.unwrap());
    assert!(!letters.remove(&second).await.unwrap());
    assert_eq!(ids(&letters.list(None, 10).await.unwrap()), ["b"]);
    sink.publish(&letter("a", 7)).await.unwrap();
    let again = sink.list(None, 10).await.unwrap();
    assert_eq!(ids(&again), ["b", "a"], "a connection that reads for the first time agrees");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_leaves_a_letter_that_came_after_it_was_looked_for() {
    let (sink, letters, _) = created().await;
    let (first, second) = (letter("a", 5), letter("a", 6));
    sink.publish(&first).await.unwrap();
    // Both have read the first letter; the second one comes before the removal.
    assert!(letters.get("a").await.unwrap().is_some());
    let (removed, published) = futures_util::join!(letters.remove(&first), sink.publish(&second));
    published.unwrap();
    removed.unwrap();
    let kept = letters.get("a").await.unwrap().expect("the later letter stays");
    assert_eq!(kept.attempts, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_listed_in_pages_from_several_partitions() {
    let topic = TestTopic::new().await;
    let letters = KafkaDeadLetters::connect(&topic.url()).await.unwrap();
    let all = ["c", "a", "kafka orders/17", "x.y.*.>", "e"];
    for id in all {
        letters.publish(&letter(id, 1)).await.unwrap();
    }
    // Not a letter.
    topic.publish_numbers(0..1).await;
    let mut seen = Vec::new();
    loop {
        let page = letters.list(seen.last().map(String::as_str), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page.into_iter().map(|letter| letter.id));
    }
    assert_eq!(seen, all);
    let error = letters.list(Some("gone"), 2).await.unwrap_err();
    assert!(error.to_string().contains("list again"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_exist_or_can_lose_letters_is_refused() {
    let name = unique("missing");
    let error = KafkaDeadLetters::connect(&format!("kafka://{}/{name}", shared())).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("create=true"), "{error}");

    let topic = TestTopic::new().await;
    topic.create(&name, 1, 1, &[("cleanup.policy", "compact")]).await;
    let error = KafkaDeadLetters::connect(&format!("kafka://{}/{name}", shared())).await;
    assert!(error.unwrap_err().to_string().contains("cleanup.policy"));
    let many = format!("kafka://{}/{}?create=true&replicas=9", shared(), unique("dead"));
    let error = KafkaDeadLetters::connect(&many).await.unwrap_err();
    assert!(error.to_string().contains("replicas"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_is_too_large_is_an_error() {
    let topic = TestTopic::new().await;
    let name = unique("small");
    topic.create(&name, 1, 1, &[("max.message.bytes", "2000")]).await;
    let letters = KafkaDeadLetters::connect(&format!("kafka://{}/{name}", shared())).await.unwrap();
    let large = Message::new("orders", vec![b'x'; 5_000]);
    let large = DeadLetter { message: Arc::new(large), ..letter("large", 1) };
    let error = letters.publish(&large).await.unwrap_err();
    assert!(error.to_string().contains("max.message.bytes"), "{error}");
    letters
        .publish(&DeadLetter { message: Arc::new(Message::new("o", "x")), ..letter("s", 1) })
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_that_the_topic_has_removed_are_not_listed() {
    let (sink, letters, topic) = created().await;
    for id in ["a", "b", "c"] {
        sink.publish(&letter(id, 1)).await.unwrap();
    }
    assert_eq!(ids(&letters.list(None, 9).await.unwrap()), ["a", "b", "c"]);
    let mut before = TopicPartitionList::new();
    before.add_partition_offset(&topic, 0, Offset::Offset(2)).unwrap();
    let admin = TestTopic::named(&shared()).admin();
    admin.delete_records(&before, &AdminOptions::new()).await.unwrap();
    assert_eq!(ids(&letters.list(None, 9).await.unwrap()), ["c"]);
    before.set_partition_offset(&topic, 0, Offset::Offset(3)).unwrap();
    admin.delete_records(&before, &AdminOptions::new()).await.unwrap();
    sink.publish(&letter("d", 1)).await.unwrap();
    assert_eq!(ids(&letters.list(None, 9).await.unwrap()), ["d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_topic_that_was_made_again_replace_the_old_ones() {
    for count in [0, 1, 2, 4] {
        let (sink, letters, topic) = created().await;
        sink.publish(&letter("old", 1)).await.unwrap();
        sink.publish(&letter("older", 1)).await.unwrap();
        assert_eq!(letters.list(None, 9).await.unwrap().len(), 2);
        let test = TestTopic::named(&shared());
        test.admin().delete_topics(&[&topic], &AdminOptions::new()).await.unwrap();
        let again = format!("kafka://{}/{topic}?create=true", shared());
        let mut made = KafkaDeadLetters::connect(&again).await;
        until("the topic is made again", async || {
            if made.is_err() {
                made = KafkaDeadLetters::connect(&again).await;
            }
            made.is_ok()
        })
        .await;
        let (sink, wanted) = (made.unwrap(), ["new 1", "new 2", "new 3", "new 4"]);
        for id in &wanted[..count] {
            sink.publish(&letter(id, 1)).await.unwrap();
        }
        assert_eq!(ids(&letters.list(None, 9).await.unwrap()), &wanted[..count]);
    }
}
