//! What becomes of a message that was acknowledged, given back, rejected or dropped.

use std::time::Duration;

use semel_consumer::Message;
use tokio::time::Instant;

use super::Fixture;
use crate::sources::queue::{Queue, ack, body, nack};

/// How much earlier than asked a broker's timer may end.
const TIMER: Duration = Duration::from_millis(20);

pub(in crate::sources) async fn an_acked_message_never_comes_again(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["1", "2", "3"]).await;
    queue.receive_and_ack(&["1", "2", "3"]).await;
    queue.nothing_is_left("all messages were acknowledged").await;
}

pub(in crate::sources) async fn an_acked_message_leaves_its_neighbours(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["1", "2", "3", "4", "5"]).await;
    let mut others = Vec::new();
    for delivery in queue.receive_all(5).await {
        match body(&delivery).as_str() {
            "3" => ack(delivery).await,
            _ => others.push(delivery),
        }
    }
    for other in others {
        nack(other, Duration::ZERO).await;
    }
    queue.receive_and_ack(&["1", "2", "4", "5"]).await;
    queue.nothing_is_left("all messages were acknowledged").await;
}

pub(in crate::sources) async fn a_nacked_message_comes_again(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["again", "other"]).await;
    let deliveries = queue.receive_all(2).await;
    for delivery in deliveries {
        match body(&delivery).as_str() {
            "again" => nack(delivery, Duration::ZERO).await,
            _ => ack(delivery).await,
        }
    }
    queue.receive_and_ack(&["again"]).await;
    queue.nothing_is_left("all messages were acknowledged").await;
}

pub(in crate::sources) async fn a_nacked_message_waits_for_its_delay(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["again"]).await;
    let delivery = queue.receive_one().await;
    // Longer than the deadline: a broker that ignores the message would hand it over too early.
    let (delay, before) = (queue.deadline() * 2, Instant::now());
    nack(delivery, delay).await;
    let again = queue.receive_one().await;
    let waited = before.elapsed();
    assert!(waited + TIMER >= delay, "a message with a delay of {delay:?} came after {waited:?}");
    ack(again).await;
}

pub(in crate::sources) async fn a_dropped_delivery_comes_again(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["dropped", "kept"]).await;
    for delivery in queue.receive_all(2).await {
        match body(&delivery).as_str() {
            "dropped" => drop(delivery),
            _ => ack(delivery).await,
        }
    }
    queue.receive_and_ack(&["dropped"]).await;
    queue.nothing_is_left("all messages were acknowledged").await;
}

pub(in crate::sources) async fn a_rejected_message_never_comes_again(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["1", "2"]).await;
    for delivery in queue.receive_all(2).await {
        delivery
            .reject("failed: a reason with spaces")
            .await
            .expect("the broker confirms a rejection");
    }
    queue.nothing_is_left("all messages were rejected").await;
}

pub(in crate::sources) async fn a_position_is_the_same_for_every_delivery(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["twin", "twin"]).await;
    let mut first = positions(&queue).await;
    let mut again = positions(&queue).await;
    let another = queue.open_another().await;
    // Some brokers give a message to no other process while this one is there.
    drop(queue);
    let mut last = positions(&another).await;
    for positions in [&mut first, &mut again, &mut last] {
        positions.sort_unstable();
    }
    assert_ne!(first[0], first[1], "two messages have two positions");
    assert_eq!(first, again, "a position is the same for every delivery");
    assert_eq!(first, last, "a position is the same in every process");
}

/// The positions of two messages, which are given back.
async fn positions(queue: &Queue) -> Vec<String> {
    let mut positions = Vec::new();
    let deliveries = queue.receive_all(2).await;
    for delivery in deliveries {
        positions.push(delivery.message.position.clone());
        nack(delivery, Duration::ZERO).await;
    }
    positions
}

pub(in crate::sources) async fn a_body_is_the_same_for_every_delivery(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    let message =
        Message::new("orders", "same").with_id("order-1").with_header("Test-Header", "value");
    queue.fixture.publish(message).await;
    let mut published_at = Vec::new();
    for _ in 0..3 {
        let delivery = queue.receive_one().await;
        published_at.push(delivery.message.published_at);
        assert_eq!(body(&delivery), "same");
        assert_eq!(delivery.message.message_id.as_deref(), Some("order-1"));
        assert_eq!(delivery.message.header("Test-Header"), Some("value"));
        nack(delivery, Duration::ZERO).await;
    }
    published_at.dedup();
    assert_eq!(published_at.len(), 1, "the broker accepted the message once: {published_at:?}");
    queue.receive_and_ack(&["same"]).await;
}

pub(in crate::sources) async fn deliveries_are_counted(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["counted"]).await;
    for wanted in 1..=4 {
        let delivery = queue.receive_one().await;
        assert_eq!(delivery.message.deliveries, Some(wanted), "delivery {wanted} of a message");
        nack(delivery, Duration::ZERO).await;
    }
    queue.publish(["fresh"]).await;
    for delivery in queue.receive_all(2).await {
        let wanted = if body(&delivery) == "fresh" { 1 } else { 5 };
        assert_eq!(
            delivery.message.deliveries,
            Some(wanted),
            "each message has a count of its own"
        );
        ack(delivery).await;
    }
}
