//! What is committed, and when.

use std::{future::pending, sync::Arc, time::Duration};

use futures_util::future::join_all;
use rdkafka::{
    ClientConfig,
    producer::{BaseProducer, BaseRecord, Producer},
};
use semel_consumer::{Delivery, Source};
use semel_source_kafka::KafkaSource;
use tokio::time::timeout;

use crate::{
    common::{
        CLASSIC, KIP_848, PARTITIONS, TestTopic, body, client, receive, receive_one, soon, until,
    },
    watcher::{Settled, Watcher},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_never_passes_a_message_that_is_not_settled_and_never_goes_back() {
    for options in [CLASSIC, KIP_848] {
        random_settlements_and_rebalances(options).await;
    }
}

/// Members come and go while messages are settled in random order, and some are given back or dropped.
async fn random_settlements_and_rebalances(options: &'static str) {
    const COUNT: u32 = 900;
    const MEMBERS: u32 = 5;
    let mut topic = TestTopic::new().await;
    topic.options = options;
    let settled = Arc::new(Settled::default());
    let watcher = Watcher::start(&topic, PARTITIONS, &settled);
    let builder = || topic.builder().window(200).drain(Duration::from_millis(300));
    let lasting = builder().connect().await.unwrap();
    let publishing = topic.publish_numbers(0..COUNT);
    let working = settle_at_random(&lasting, &settled);
    let rebalancing = async {
        for _ in 0..MEMBERS {
            let passing = builder().connect().await.unwrap();
            let _ =
                timeout(Duration::from_millis(1500), settle_at_random(&passing, &settled)).await;
            passing.close().await.unwrap();
        }
        pending::<()>().await;
    };
    let finished = async {
        publishing.await;
        let all = async || topic.committed().iter().sum::<i64>() == i64::from(COUNT);
        until("everything is settled and committed", all).await;
    };
    tokio::select! {
        () = working => {}
        () = rebalancing => {}
        () = finished => {}
    }
    lasting.close().await.unwrap();
    watcher.end();
}

async fn settle_at_random(source: &KafkaSource, settled: &Settled) {
    let mut held: Vec<Delivery> = Vec::new();
    loop {
        // While some are held, not much time is spent waiting for more.
        match timeout(Duration::from_millis(20), source.receive(20)).await {
            Ok(received) => held.extend(received.unwrap()),
            Err(_) if held.is_empty() => continue,
            Err(_) => {}
        }
        while held.len() > 30 || rand::random_bool(0.5) && !held.is_empty() {
            let delivery = held.swap_remove(rand::random_range(0..held.len()));
            match rand::random_range(0..10) {
                0 => delivery.nack(Duration::from_millis(rand::random_range(0..50))).await.unwrap(),
                1 => drop(delivery),
                _ => {
                    settled.add(&delivery.message);
                    // An error: the partition was revoked, and the message comes again elsewhere.
                    let _ = delivery.ack().await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_source_has_committed_what_is_done() {
    let topic = TestTopic::with_one_partition().await;
    topic.publish_numbers(0..5).await;
    let source = topic.source().await;
    let mut deliveries = receive(&source, 5, 5).await;
    let held = deliveries.remove(3);
    join_all(deliveries.into_iter().map(Delivery::ack)).await;
    soon(source.close()).await.unwrap();
    assert_eq!(topic.committed(), [3], "3 is not done");
    drop((held, source));
    let source = topic.source().await;
    let again = receive(&source, 2, 5).await;
    assert_eq!(again.iter().map(body).collect::<Vec<_>>(), ["3", "4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_window_pauses_its_partition_and_no_other() {
    const WINDOW: usize = 20;
    let topic = TestTopic::new().await;
    let source = topic.builder().window(WINDOW).connect().await.unwrap();
    // Records with one key are in one partition.
    for number in 0..100 {
        topic
            .publish(&semel_consumer::Message::new("", format!("a{number}")).with_ordering_key("a"))
            .await;
    }
    let first = receive_one(&source).await;
    assert_eq!(body(&first), "a0");
    let mut received = 0;
    while let Ok(deliveries) = timeout(Duration::from_secs(2), source.receive(7)).await {
        for delivery in deliveries.unwrap() {
            received += 1;
            delivery.ack().await.unwrap();
        }
    }
    assert_eq!(received, WINDOW - 1, "so many come while a0 is not done");
    // Another partition goes on. Of so many keys, some are there.
    for number in 0..20 {
        let key = format!("key {number}");
        topic.publish(&semel_consumer::Message::new("", "b").with_ordering_key(key)).await;
    }
    let other = receive_one(&source).await;
    assert_eq!(body(&other), "b");
    other.ack().await.unwrap();
    first.ack().await.unwrap();
    let mut left = 99 - received + 19;
    while left > 0 {
        receive_one(&source).await.ack().await.unwrap();
        left -= 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_records_are_not_handed_over_and_their_gaps_are_passed() {
    let topic = TestTopic::with_one_partition().await;
    let id = topic.group.clone();
    let mut config: ClientConfig = client(&topic.brokers);
    let producer: BaseProducer = config.set("transactional.id", &id).create().unwrap();
    let (name, limit) = (topic.name.clone(), Duration::from_secs(60));
    tokio::task::spawn_blocking(move || {
        producer.init_transactions(limit).unwrap();
        for (number, is_committed) in [(0, true), (1, false), (2, true), (3, false), (4, true)] {
            producer.begin_transaction().unwrap();
            let body = number.to_string();
            producer.send(BaseRecord::<(), _>::to(&name).payload(&body)).unwrap();
            producer.flush(limit).unwrap();
            match is_committed {
                true => producer.commit_transaction(limit).unwrap(),
                false => producer.abort_transaction(limit).unwrap(),
            }
        }
    })
    .await
    .unwrap();
    let source = topic.source().await;
    let deliveries = receive(&source, 3, 9).await;
    assert_eq!(deliveries.iter().map(body).collect::<Vec<_>>(), ["0", "2", "4"]);
    let positions: Vec<_> = deliveries.iter().map(|it| it.message.position.clone()).collect();
    assert_eq!(positions[2], format!("{}/0/8", topic.name), "each transaction leaves a marker");
    join_all(deliveries.into_iter().rev().map(Delivery::ack)).await;
    until("the gaps are passed", async || topic.committed() == [9]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_delivery_is_not_counted_while_a_dead_process_may_have_had_it() {
    let topic = TestTopic::with_one_partition().await;
    topic.publish_numbers(0..1).await;
    let source = topic.source().await;
    for deliveries in [None, Some(2)] {
        let delivery = receive_one(&source).await;
        assert_eq!(delivery.message.deliveries, deliveries);
        delivery.nack(Duration::ZERO).await.unwrap();
    }
}
