//! A group whose offsets an operator resets reads everything again, and nothing runs.

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
};

use crate::{
    common::{PARTITIONS, TestTopic, client, until},
    load::{Ledger, publish},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_the_whole_topic_has_no_effect() {
    const EVENTS: u32 = 200;
    let (topic, mut ledger) = (TestTopic::new().await, Ledger::default());
    let records = publish(&topic, 0..EVENTS).await;
    consume(&topic, &mut ledger, EVENTS, records).await;
    assert!(ledger.not_acknowledged() > 0, "some failed, for good or at first");

    reset(&topic);
    assert_eq!(topic.committed().iter().sum::<i64>(), 0);
    consume(&topic, &mut ledger, EVENTS, records).await;
    // No event ran again, so a record that was acknowledged was a duplicate.
    assert_eq!(ledger.not_acknowledged(), 0, "each record is a duplicate");
}

/// Consumes the topic from the committed offsets to its end.
async fn consume(topic: &TestTopic, ledger: &mut Ledger, events: u32, records: i64) {
    let watcher = ledger.watch(topic);
    let consumer = ledger.start(topic).await;
    ledger.finish(topic, events, records).await;
    consumer.stop().await;
    watcher.end();
}

/// As `kafka-consumer-groups --reset-offsets --to-earliest` does, for a group without members.
fn reset(topic: &TestTopic) {
    let consumer: BaseConsumer =
        client(&topic.brokers).set("group.id", &topic.group).create().unwrap();
    let mut offsets = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        offsets.add_partition_offset(&topic.name, partition, Offset::Offset(0)).unwrap();
    }
    consumer.commit(&offsets, CommitMode::Sync).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_come_and_go_under_load() {
    const EVENTS: u32 = 600;
    let (topic, mut ledger) = (TestTopic::new().await, Ledger::default());
    let watcher = ledger.watch(&topic);
    let publishing = publish(&topic, 0..EVENTS);
    let changing = async {
        let lasting = ledger.start(&topic).await;
        for round in 1..=4 {
            let passing = ledger.start(&topic).await;
            until("it goes on", async || ledger.ran() >= round * EVENTS as usize / 5).await;
            passing.stop().await;
        }
        lasting
    };
    let (records, lasting) = futures_util::join!(publishing, changing);
    ledger.finish(&topic, EVENTS, records).await;
    lasting.stop().await;
    watcher.end();
}
