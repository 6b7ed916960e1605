//! Publishing messages again.

use semel_consumer::{Message, dead_letter::MessagePublisher};
use semel_core::ErrorKind;
use semel_source_nats::NatsPublisher;
use serde_json::json;

use crate::common::{Broker, body, receive_one, unique};

#[tokio::test]
async fn a_published_message_is_stored_with_its_headers() {
    let broker = Broker::with_consumer(json!({})).await;
    let source = broker.source().await;
    // The URL of the source will do.
    let publisher = NatsPublisher::connect(&broker.source_url()).await.unwrap();
    let message = Message::new(broker.subject("x"), "again")
        .with_header("Semel-Event-Id", "order-1")
        .with_header("Tenant", "b")
        .with_header("Tenant", "a")
        .with_ordering_key("customer-7");
    publisher.publish(&message).await.unwrap();
    assert_eq!(broker.stored().await, 1, "it is stored when the call returns");
    let delivery = receive_one(&source).await;
    assert_eq!(body(&delivery), "again");
    let arrived = &delivery.message;
    assert_eq!(arrived.header("Semel-Event-Id"), Some("order-1"));
    assert_eq!(arrived.headers.iter().filter(|header| header.name == "Tenant").count(), 2);
    assert_eq!(arrived.ordering_key.as_deref(), Some("customer-7"));
}

/// The stream remembers the message id of the original, and the original may have had conditions.
#[tokio::test]
async fn a_redriven_copy_is_not_dropped_as_a_duplicate() {
    let broker = Broker::with_consumer(json!({})).await;
    let headers = [("Nats-Msg-Id", "order-1"), ("Nats-Expected-Last-Sequence", "0")];
    broker.publish("x", &headers, "original").await;
    let original = receive_one(&broker.source().await).await.message.clone();
    let publisher = NatsPublisher::from_client(broker.client.clone());
    let copy = Message { message_id: Some(unique("order-1")), ..(*original).clone() };
    publisher.publish(&copy).await.unwrap();
    publisher.publish(&Message { message_id: None, ..copy }).await.unwrap();
    assert_eq!(broker.stored().await, 3);
}

#[tokio::test]
async fn a_message_that_no_stream_stores_is_not_published() {
    let broker = Broker::with_stream(json!({})).await;
    let publisher = NatsPublisher::from_client(broker.client.clone());
    let subject = unique("nowhere");
    let error = publisher.publish(&Message::new(subject.as_str(), "x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&subject), "{error}");
    let error = publisher.publish(&Message::new("two words", "x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_stream_that_is_full_refuses_a_message() {
    let broker = Broker::with_stream(json!({ "max_msgs": 1, "discard": "new" })).await;
    let publisher = NatsPublisher::from_client(broker.client.clone());
    let message = Message::new(broker.subject("x"), "x");
    publisher.publish(&message).await.unwrap();
    let error = publisher.publish(&message).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
}
