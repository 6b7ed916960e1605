//! Messages that are published again.

use semel_consumer::{Message, dead_letter::MessagePublisher};
use semel_core::ErrorKind;
use semel_source_kafka::KafkaPublisher;

use crate::common::{TestTopic, receive_one, unique};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_published_with_its_key_its_headers_and_its_id() {
    let topic = TestTopic::with_one_partition().await;
    let publisher = KafkaPublisher::connect(&topic.source_url()).await.unwrap();
    let message = Message::new(&*topic.name, &b"\xff body"[..])
        .with_header("Tenant", "b")
        .with_header("Tenant", "a")
        .with_id("m-2")
        .with_record_key(&b"\xff\x01"[..])
        .with_ordering_key("of a header");
    publisher.publish(&message).await.unwrap();
    let tombstone = Message { is_tombstone: true, body: "".into(), ..message.clone() };
    publisher.publish(&tombstone).await.unwrap();
    let source = topic.source().await;
    let published = receive_one(&source).await.message.clone();
    assert_eq!(published.body, message.body);
    assert_eq!(published.headers[..2], message.headers[..]);
    assert_eq!(published.message_id.as_deref(), Some("m-2"));
    assert_eq!(published.record_key, message.record_key);
    assert_eq!(published.ordering_key.as_deref(), Some("hex:ff01"));
    assert!(receive_one(&source).await.message.is_tombstone);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_published_is_an_error() {
    let topic = TestTopic::new().await;
    let publisher = KafkaPublisher::connect(&topic.url()).await.unwrap();
    let error = publisher.publish(&Message::new("a topic", "x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let missing = unique("missing");
    let error = publisher.publish(&Message::new(&*missing, "x")).await.unwrap_err();
    assert!(error.to_string().contains(&missing), "{error}");
    KafkaPublisher::connect("kafka://u:canary@h:x").await.unwrap_err();
}
