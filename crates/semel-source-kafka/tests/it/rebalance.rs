//! Partitions that are revoked.

use std::{collections::HashSet, sync::Arc, time::Duration};

use rdkafka::{
    admin::{AdminOptions, NewPartitions},
    producer::{FutureProducer, FutureRecord},
};
use semel_consumer::{Delivery, Message, Source};
use semel_core::ErrorKind;
use semel_source_kafka::KafkaSource;
use tokio::time::{Instant, sleep};

use crate::common::{
    CLASSIC, KIP_848, PARTITIONS, TestTopic, body, client, receive, receive_one, soon, until,
};

const COUNT: u32 = 60;

/// A source that has received all messages of a topic, and settled none.
async fn holder(topic: &TestTopic, drain: Duration) -> (KafkaSource, Vec<Delivery>) {
    topic.publish_numbers(0..COUNT).await;
    let source = topic.builder().drain(drain).connect().await.unwrap();
    let held = receive(&source, COUNT as usize, 100).await;
    (source, held)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_revoked_waits_for_its_handlers() {
    for options in [CLASSIC, KIP_848] {
        let mut topic = TestTopic::new().await;
        topic.options = options;
        let (_source, held) = holder(&topic, Duration::from_secs(60)).await;
        let other = Arc::new(topic.source().await);
        let waiting = other.clone();
        let receiving = tokio::spawn(async move { receive_one(&waiting).await });
        // A rebalance: the consumer that loses partitions waits.
        sleep(Duration::from_secs(2)).await;
        assert!(!receiving.is_finished(), "its handlers run");
        for delivery in held {
            delivery.ack().await.unwrap();
        }
        let all = async || topic.committed().iter().sum::<i64>() == i64::from(COUNT);
        until("what was settled while the partition was revoked is committed", all).await;
        topic.publish_numbers(COUNT..COUNT + 30).await;
        let new = soon(receiving).await.unwrap();
        assert!(body(&new).parse::<u32>().unwrap() >= COUNT, "an earlier one is done");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_after_the_partition_was_revoked_changes_nothing() {
    for options in [CLASSIC, KIP_848] {
        let mut topic = TestTopic::new().await;
        topic.options = options;
        let (_source, held) = holder(&topic, Duration::ZERO).await;
        let other = topic.source().await;
        let taken = receive_one(&other).await;
        let position = taken.message.position.clone();
        let partition = &position[..position.rfind('/').unwrap()];
        let is_taken = |it: &&Delivery| it.message.position.starts_with(&format!("{partition}/"));
        let late = held.iter().filter(is_taken).count();
        assert!(late > 0, "the other one has got messages that this one holds");
        for delivery in held {
            let is_late = is_taken(&&delivery);
            let result = delivery.ack().await;
            assert!(!is_late || result.is_err(), "a late acknowledgement is not confirmed");
        }
        // Longer than two commits.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(3) {
            let number: usize = partition.rsplit('/').next().unwrap().parse().unwrap();
            assert!(topic.committed()[number] <= 0, "the new owner has settled nothing");
            sleep(Duration::from_millis(50)).await;
        }
        drop(taken);
    }
}

/// The driver keeps a partition paused when it is revoked.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_was_revoked_while_it_was_paused_is_consumed_when_it_comes_back() {
    const WINDOW: usize = 5;
    for options in [CLASSIC, KIP_848] {
        let mut topic = TestTopic::new().await;
        topic.options = options;
        for number in 0..COUNT {
            let number = number.to_string();
            topic.publish(&Message::new("", number.clone()).with_ordering_key(number)).await;
        }
        let builder = || topic.builder().window(WINDOW).drain(Duration::ZERO);
        let source = builder().connect().await.unwrap();
        let partitions = usize::try_from(PARTITIONS).unwrap();
        let held = receive(&source, partitions * WINDOW, 100).await;
        let other = builder().connect().await.unwrap();
        drop(receive_one(&other).await);
        soon(other.close()).await.unwrap();
        drop(held);
        let mut missing: HashSet<_> = (0..COUNT).map(|number| number.to_string()).collect();
        while !missing.is_empty() {
            let delivery = receive_one(&source).await;
            missing.remove(body(&delivery));
            // An error: it was received before its partition was revoked.
            let _ = delivery.ack().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_are_added_are_consumed() {
    let topic = TestTopic::with_one_partition().await;
    let builder = topic.builder().setting("topic.metadata.refresh.interval.ms", "300");
    let source = builder.connect().await.unwrap();
    topic.publish_numbers(0..1).await;
    receive_one(&source).await.ack().await.unwrap();
    let added = NewPartitions::new(&topic.name, 4);
    let created = topic.admin().create_partitions([&added], &AdminOptions::new()).await.unwrap();
    created[0].as_ref().unwrap();
    // A producer that is new, and knows the new partitions.
    let producer: FutureProducer = client(&topic.brokers).create().unwrap();
    let record = FutureRecord::<[u8], str>::to(&topic.name).partition(3).payload("new");
    soon(producer.send(record, crate::common::PATIENCE)).await.unwrap();
    let delivery = receive_one(&source).await;
    assert_eq!(delivery.message.position, format!("{}/3/0", topic.name));
    delivery.ack().await.unwrap();
}

/// A static member whose place another one has taken is fenced: the driver reports it once, and its consumer receives
/// nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_the_group_has_replaced_fails_with_the_reason() {
    let mut topic = TestTopic::with_one_partition().await;
    topic.options = "&group.instance.id=one&heartbeat.interval.ms=100&session.timeout.ms=6000";
    let replaced = topic.source().await;
    topic.publish_numbers(0..1).await;
    receive_one(&replaced).await.ack().await.unwrap();
    let new = topic.source().await;
    for _ in 0..2 {
        let failed = async {
            loop {
                match replaced.receive(1).await {
                    Err(error) if error.kind() == ErrorKind::Closed => break error,
                    Err(_) => {}
                    Ok(received) => {
                        assert!(!received.is_empty(), "it has not ended without a reason")
                    }
                }
            }
        };
        let error = soon(failed).await;
        assert!(error.to_string().contains("restarted"), "{error}");
    }
    topic.publish_numbers(1..2).await;
    let received = async {
        loop {
            let delivery = receive_one(&new).await;
            if body(&delivery) == "1" {
                break;
            }
            delivery.ack().await.unwrap();
        }
    };
    soon(received).await;
    soon(replaced.close()).await.unwrap();
}
