//! Messages that the server does not deliver any more.

use std::time::Duration;

use semel_consumer::{Delivery, Source};
use semel_source_nats::NatsSource;
use serde_json::{Value, json};

use crate::common::{Broker, body, receive_one, until};

/// Uses up the deliveries of a message. The server gives up when it would deliver it once more.
pub(crate) async fn exhaust(source: &NatsSource, max_deliver: u32) -> Delivery {
    for _ in 0..max_deliver {
        let delivery = receive_one(source).await;
        assert!(!delivery.message.given_up);
        delivery.nack(Duration::ZERO).await.unwrap();
    }
    receive_one(source).await
}

async fn limited(stream: Value) -> (Broker, NatsSource) {
    let broker = Broker::with_stream(stream).await;
    broker.make_consumer("c", json!({ "max_deliver": 2 })).await;
    let source = broker.source().await;
    (broker, source)
}

#[tokio::test]
async fn a_message_at_the_limit_of_deliveries_is_handed_over_as_given_up() {
    let (broker, source) = limited(json!({})).await;
    let headers = [("Nats-Msg-Id", "order-1"), ("Tenant", "b"), ("Tenant", "a")];
    broker.publish("x", &headers, "one").await;
    let given_up = exhaust(&source, 2).await;
    let message = given_up.message.clone();
    assert!(message.given_up);
    assert_eq!((body(&given_up), message.deliveries), ("one", Some(2)));
    assert_eq!(message.message_id.as_deref(), Some("order-1"));
    assert_eq!(message.position, format!("{}/1", broker.stream));
    assert_eq!(message.headers.iter().filter(|header| header.name == "Tenant").count(), 2);
    assert!(message.published_at.is_some());

    // It comes again when the caller is not done with it, although the server does not deliver it.
    given_up.nack(Duration::from_millis(100)).await.unwrap();
    let again = receive_one(&source).await;
    assert!(again.message.given_up);
    drop(again);
    receive_one(&source).await.reject("a dead letter").await.unwrap();
    assert_eq!(broker.stored().await, 1, "a stream with retention limits keeps its messages");
    broker.publish("x", &[], "two").await;
    assert_eq!(body(&receive_one(&source).await), "two");
}

#[tokio::test]
async fn a_work_queue_does_not_keep_a_given_up_message() {
    let (broker, source) = limited(json!({ "retention": "workqueue" })).await;
    broker.publish("x", &[], "one").await;
    let given_up = exhaust(&source, 2).await;
    assert_eq!(broker.stored().await, 1, "the server leaves it there");
    given_up.ack().await.unwrap();
    assert_eq!(broker.stored().await, 0);
}

/// Other consumers of the stream still need the message.
#[tokio::test]
async fn an_interest_stream_keeps_a_given_up_message_for_its_other_consumers() {
    let (broker, source) = limited(json!({ "retention": "interest" })).await;
    broker.make_consumer("other", json!({})).await;
    broker.publish("x", &[], "one").await;
    exhaust(&source, 2).await.ack().await.unwrap();
    assert_eq!(broker.stored().await, 1);
    let url = format!("{}/{}/other", broker.url, broker.stream);
    let other = NatsSource::connect(&url).await.unwrap();
    receive_one(&other).await.ack().await.unwrap();
    until("no consumer needs it", async || broker.stored().await == 0).await;
}

#[tokio::test]
async fn an_interest_stream_does_not_keep_a_message_that_all_consumers_gave_up() {
    let (broker, source) = limited(json!({ "retention": "interest" })).await;
    broker.publish("x", &[], "one").await;
    exhaust(&source, 2).await.reject("a dead letter").await.unwrap();
    until("it is removed", async || broker.stored().await == 0).await;
}

#[tokio::test]
async fn a_given_up_message_that_was_removed_meanwhile_is_skipped() {
    let (broker, source) = limited(json!({})).await;
    broker.publish("x", &[], "one").await;
    let given_up = exhaust(&source, 2).await;
    broker.api(&format!("STREAM.PURGE.{}", broker.stream), json!({})).await;
    given_up.nack(Duration::ZERO).await.unwrap();
    broker.publish("x", &[], "two").await;
    assert_eq!(body(&receive_one(&source).await), "two");
    source.close().await.unwrap();
}
