//! Records of every kind become messages, and nothing about them is lost.

use std::time::{Duration, SystemTime};

use rdkafka::{
    message::{Header, OwnedHeaders},
    producer::FutureRecord,
};

use crate::common::{TestTopic, receive_one};

fn record(topic: &TestTopic) -> FutureRecord<'_, [u8], [u8]> {
    FutureRecord::to(&topic.name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_is_no_empty_payload() {
    let topic = TestTopic::with_one_partition().await;
    topic.produce(record(&topic).key(b"k")).await;
    topic.produce(record(&topic).key(b"k").payload(b"")).await;
    let source = topic.source().await;
    let (tombstone, empty) = (receive_one(&source).await, receive_one(&source).await);
    assert!(tombstone.message.is_tombstone && tombstone.message.body.is_empty());
    assert!(!empty.message.is_tombstone && empty.message.body.is_empty());
    assert_eq!(tombstone.message.ordering_key.as_deref(), Some("k"));
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_any_bytes_arrive() {
    let topic = TestTopic::with_one_partition().await;
    let headers = OwnedHeaders::new()
        .insert(Header { key: "Null", value: None::<&[u8]> })
        .insert(Header { key: "", value: Some(&b"no name"[..]) })
        .insert(Header { key: "Binary", value: Some(&b"\xff\0\r\n"[..]) })
        .insert(Header { key: "Twice", value: Some(&b"1"[..]) })
        .insert(Header { key: "Twice", value: Some(&b"2"[..]) });
    topic.produce(record(&topic).payload(b"x").headers(headers)).await;
    let source = topic.source().await;
    let delivery = receive_one(&source).await;
    let headers: Vec<_> =
        delivery.message.headers.iter().map(|it| (it.name.as_str(), &it.value[..])).collect();
    let wanted: [(&str, &[u8]); 5] = [
        ("Null", b""),
        ("", b"no name"),
        ("Binary", b"\xff\0\r\n"),
        ("Twice", b"1"),
        ("Twice", b"2"),
    ];
    assert_eq!(headers, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_any_bytes_is_an_ordering_key() {
    let topic = TestTopic::with_one_partition().await;
    topic.produce(record(&topic).key(b"\xff\x01").payload(b"x")).await;
    topic.produce(record(&topic).payload(b"x")).await;
    let source = topic.source().await;
    let (binary, none) = (receive_one(&source).await, receive_one(&source).await);
    assert_eq!(binary.message.ordering_key.as_deref(), Some("hex:ff01"));
    assert_eq!(none.message.ordering_key, None);
    assert_eq!(binary.message.record_key.as_deref(), Some(&b"\xff\x01"[..]));
    assert_eq!(none.message.record_key, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_ordering_keys_can_be_chosen() {
    let topic = TestTopic::with_one_partition().await;
    let headers = OwnedHeaders::new().insert(Header { key: "Tenant", value: Some("t-7") });
    topic.produce(record(&topic).key(b"k").payload(b"x").headers(headers)).await;
    for (option, wanted) in [
        ("partition", Some(format!("{}/0", topic.name))),
        ("header:tenant", Some("t-7".to_owned())),
        ("header:other", None),
        ("none", None),
    ] {
        let url = format!("{}&ordering-key={option}", topic.source_url());
        let source = semel_source_kafka::KafkaSource::connect(&url).await.unwrap();
        let delivery = receive_one(&source).await;
        assert_eq!(delivery.message.ordering_key, wanted, "{option}");
        assert_eq!(delivery.message.record_key.as_deref(), Some(&b"k"[..]), "{option}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_record_is_kept() {
    let topic = TestTopic::with_one_partition().await;
    topic.produce(record(&topic).payload(b"x").timestamp(1_700_000_000_123)).await;
    let source = topic.source().await;
    let delivery = receive_one(&source).await;
    let wanted = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    assert_eq!(delivery.message.published_at, Some(wanted));
    assert_eq!(delivery.message.topic, topic.name);
    assert_eq!(delivery.message.position, format!("{}/0/0", topic.name));
}
