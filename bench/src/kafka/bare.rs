//! The limit: a consumer of librdkafka that only stores the offset of each message. They are committed each second.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};

use crate::topic::BenchTopic;

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// Messages per second, from the first one to the last one.
pub(crate) async fn rate(topic: &BenchTopic, messages: u64) -> Result<f64> {
    let mut config = topic.client();
    config
        .set("group.id", topic.new_group())
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed")
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("enable.auto.commit", "true")
        .set("auto.commit.interval.ms", "1000")
        .set("enable.auto.offset.store", "false");
    let consumer: BaseConsumer = config.create()?;
    let name = topic.name().to_owned();
    tokio::task::spawn_blocking(move || read(&consumer, &name, messages)).await?
}

fn read(consumer: &BaseConsumer, topic: &str, messages: u64) -> Result<f64> {
    consumer.subscribe(&[topic])?;
    let mut started = None;
    let mut bytes = 0;
    let (mut read, mut last) = (0, Instant::now());
    while read < messages {
        // Nothing: a poll also ends when the group has shared its partitions.
        let Some(message) = consumer.poll(POLL) else {
            ensure!(last.elapsed() < PATIENCE, "only {read} messages came");
            continue;
        };
        let message = message?;
        started.get_or_insert_with(Instant::now);
        bytes += message.payload_len();
        consumer.store_offset_from_message(&message)?;
        (read, last) = (read + 1, Instant::now());
    }
    let elapsed = started.context("there are no messages")?.elapsed();
    std::hint::black_box(bytes);
    consumer.commit_consumer_state(CommitMode::Sync)?;
    Ok(messages as f64 / elapsed.as_secs_f64())
}
