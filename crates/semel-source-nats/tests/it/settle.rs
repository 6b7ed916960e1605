//! Settling deliveries.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use semel_consumer::Source;
use serde_json::{Value, json};

use crate::common::{Broker, body, receive_one, soon, until};

const SECOND: u64 = 1_000_000_000;

#[tokio::test]
async fn an_acknowledgement_has_reached_the_server_when_it_returns() {
    let broker = Broker::with_consumer(json!({})).await;
    broker.publish("x", &[], "one").await;
    let source = broker.source().await;
    receive_one(&source).await.ack().await.unwrap();
    let info = broker.consumer_info().await;
    assert_eq!(info["num_ack_pending"], 0);
    assert_eq!(info["ack_floor"]["stream_seq"], 1);
}

#[tokio::test]
async fn unconfirmed_acknowledgements_arrive_with_the_close_at_the_latest() {
    let broker = Broker::with_consumer(json!({})).await;
    broker.publish_numbers(0..50).await;
    let source = broker.builder().confirm_acks(false).connect().await.unwrap();
    for delivery in crate::common::receive(&source, 50, 10).await {
        delivery.ack().await.unwrap();
    }
    source.close().await.unwrap();
    until("all arrived", async || broker.unacknowledged().await == 0).await;
}

#[tokio::test]
async fn a_message_comes_again_after_the_delay() {
    let broker = Broker::with_consumer(json!({})).await;
    broker.publish("x", &[], "one").await;
    let source = broker.source().await;
    let delay = Duration::from_millis(700);
    let start = Instant::now();
    receive_one(&source).await.nack(delay).await.unwrap();
    let again = receive_one(&source).await;
    assert!(start.elapsed() >= delay, "{:?}", start.elapsed());
    assert_eq!((body(&again), again.message.deliveries), ("one", Some(2)));
    assert!(again.message.is_redelivery());
    // Without a delay, it does not wait for the deadline of a minute.
    again.nack(Duration::ZERO).await.unwrap();
    assert_eq!(receive_one(&source).await.message.deliveries, Some(3));
}

#[tokio::test]
async fn a_message_that_is_not_settled_comes_again_after_the_deadline() {
    let broker = Broker::with_consumer(json!({ "ack_wait": SECOND })).await;
    broker.publish("x", &[], "one").await;
    let source = broker.source().await;
    drop(receive_one(&source).await);
    let again = receive_one(&source).await;
    assert_eq!((body(&again), again.message.deliveries), ("one", Some(2)));
}

#[tokio::test]
async fn a_rejected_message_does_not_come_again_and_the_server_knows_why() {
    let broker = Broker::with_consumer(json!({})).await;
    let advisories = format!("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{}.c", broker.stream);
    let mut advisories = broker.client.subscribe(advisories).await.unwrap();
    broker.client.flush().await.unwrap();
    broker.publish("x", &[], "one").await;
    let source = broker.source().await;
    receive_one(&source).await.reject("no\r\nmoney").await.unwrap();
    assert_eq!(broker.unacknowledged().await, 0);
    let advisory: Value =
        serde_json::from_slice(&soon(advisories.next()).await.unwrap().payload).unwrap();
    assert_eq!(advisory["stream_seq"], 1);
    assert_eq!(advisory["reason"], "no  money");
}

/// The runtime calls the settlement of a delivery that it has handed out.
mod extend {
    use std::{sync::Arc, time::Duration};

    use semel_consumer::{Consumer, Event, EventContext, dead_letter::MemoryDeadLetters};
    use semel_core::{MemoryStore, WorkError};
    use serde_json::{Value, json};
    use tokio::{sync::Notify, time::sleep};

    use super::SECOND;
    use crate::common::{Broker, soon, until};

    /// A handler that takes longer than the deadline runs once, and its delivery is the only one.
    #[tokio::test]
    async fn a_long_handler_keeps_its_delivery() {
        let broker = Broker::with_consumer(json!({ "ack_wait": SECOND })).await;
        broker.publish("x", &[("Nats-Msg-Id", "one")], "{}").await;
        let started = Arc::new(Notify::new());
        let consumer = Consumer::builder(broker.source().await)
            .name("long")
            .store(MemoryStore::new())
            .unwrap()
            .dead_letters(MemoryDeadLetters::new())
            .handler({
                let started = started.clone();
                move |_: Event<Value>, _: EventContext| {
                    let started = started.clone();
                    async move {
                        started.notify_one();
                        sleep(Duration::from_millis(2_500)).await;
                        Ok::<_, WorkError>(())
                    }
                }
            })
            .build()
            .unwrap();
        let control = consumer.control();
        let running = tokio::spawn(consumer.run());
        soon(started.notified()).await;
        until("it is acknowledged", async || {
            broker.consumer_info().await["ack_floor"]["stream_seq"] == 1
        })
        .await;
        let info = broker.consumer_info().await;
        assert_eq!(info["delivered"]["consumer_seq"], 1, "one delivery: {info}");
        control.stop();
        soon(running).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn nothing_is_acknowledged_while_the_server_cannot_confirm() {
    let broker = Broker::with_consumer(json!({})).await;
    broker.publish("x", &[], "one").await;
    let source = broker.source().await;
    let delivery = receive_one(&source).await;
    broker.api(&format!("CONSUMER.DELETE.{}.c", broker.stream), json!({})).await;
    let error = delivery.ack().await.unwrap_err();
    assert!(error.kind().is_retryable(), "{error}");
    source.close().await.unwrap();
}
