//! Outcomes that are sent to the topic that a message names.

use semel_consumer::{Message, Source};
use semel_core::Outcome;

use crate::common::{TestTopic, body, receive_one, unique};

#[tokio::test(flavor = "multi_thread")]
async fn the_outcome_goes_to_the_topic_that_the_message_names() {
    let (topic, replies) = (TestTopic::new().await, TestTopic::with_one_partition().await);
    let message = Message::new("", "x")
        .with_header("Reply-To", replies.name.clone())
        .with_id("m-1")
        .with_ordering_key("k");
    topic.publish(&message).await;
    let source = topic.source().await;
    let delivery = receive_one(&source).await;
    source.reply(&delivery.message, &Outcome::success("done")).await.unwrap();
    let reader = replies.source().await;
    let reply = receive_one(&reader).await;
    assert_eq!(body(&reply), "done");
    assert_eq!(reply.message.header("Semel-Status"), Some("success"));
    assert_eq!(reply.message.header("Semel-In-Reply-To"), Some("m-1"));
    assert_eq!(reply.message.ordering_key.as_deref(), Some("k"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_can_never_be_sent_is_given_up() {
    let topic = TestTopic::new().await;
    let source = topic.source().await;
    for reply_to in ["__consumer_offsets", "no topic", &unique("missing")] {
        let message = Message { reply_to: Some(reply_to.to_owned()), ..Message::new("t", "x") };
        source.reply(&message, &Outcome::success("done")).await.unwrap();
    }
    source.reply(&Message::new("t", "x"), &Outcome::success("done")).await.unwrap();
}
