//! Outcomes that are sent to the producer.

use async_nats::HeaderMap;
use futures_util::StreamExt;
use semel_consumer::{Message, Source};
use semel_core::{Head, Outcome};
use serde_json::{Value, json};

use crate::common::{Broker, soon, unique};

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| value.as_str().to_owned())
}

#[tokio::test]
async fn the_outcome_arrives_at_the_subject_that_the_message_names() {
    let broker = Broker::with_consumer(json!({})).await;
    let subject = unique("replies");
    let mut replies = broker.client.subscribe(subject.clone()).await.unwrap();
    broker.client.flush().await.unwrap();
    let source = broker.source().await;
    let message =
        Message { reply_to: Some(subject), ..Message::new("orders", "x").with_id("order-1") };
    let head = Head { content_type: Some("application/json".into()), ..Head::default() };
    source.reply(&message, &Outcome::success("{\"ok\":true}").with_head(head)).await.unwrap();
    let reply = soon(replies.next()).await.unwrap();
    assert_eq!(&reply.payload[..], b"{\"ok\":true}");
    let headers = reply.headers.unwrap();
    assert_eq!(header(&headers, "Content-Type").as_deref(), Some("application/json"));
    assert_eq!(header(&headers, "Semel-Status").as_deref(), Some("success"));
    assert_eq!(header(&headers, "Semel-In-Reply-To").as_deref(), Some("order-1"));

    source.reply(&message, &Outcome::failure("card_declined", "no money")).await.unwrap();
    let headers = soon(replies.next()).await.unwrap().headers.unwrap();
    assert_eq!(header(&headers, "Semel-Status").as_deref(), Some("failure"));
    assert_eq!(header(&headers, "Semel-Failure-Kind").as_deref(), Some("card_declined"));

    let nowhere = Message { reply_to: None, ..message };
    source.reply(&nowhere, &Outcome::success("")).await.unwrap();
}

#[tokio::test]
async fn a_stream_may_capture_the_replies() {
    let broker = Broker::with_consumer(json!({})).await;
    let source = broker.source().await;
    let message =
        Message { reply_to: Some(broker.subject("replies")), ..Message::new("orders", "x") };
    source.reply(&message, &Outcome::success("done")).await.unwrap();
    assert_eq!(broker.stored().await, 1);
}

/// A producer must not make the worker do what it may not do itself.
#[tokio::test]
async fn a_reply_is_not_sent_to_the_server_itself() {
    let broker = Broker::with_consumer(json!({})).await;
    let source = broker.source().await;
    for subject in [
        format!("$JS.API.STREAM.DELETE.{}", broker.stream),
        "two words".to_owned(),
        "a.>".to_owned(),
    ] {
        let message = Message { reply_to: Some(subject), ..Message::new("orders", "x") };
        source.reply(&message, &Outcome::success("")).await.unwrap();
    }
    let info: Value = broker.api(&format!("STREAM.INFO.{}", broker.stream), json!({})).await;
    assert_eq!(info["error"], Value::Null, "the stream is there");
}

#[tokio::test]
async fn a_reply_that_is_too_large_is_given_up() {
    let broker = Broker::with_consumer(json!({})).await;
    let source = broker.source().await;
    let message =
        Message { reply_to: Some(broker.subject("replies")), ..Message::new("orders", "x") };
    source.reply(&message, &Outcome::success(vec![b'x'; 2 << 20])).await.unwrap();
    assert_eq!(broker.stored().await, 0);
}
