//! The stream, the consumer, the bucket and the dead letters of the run.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use async_nats::{
    HeaderMap,
    jetstream::{self, consumer::pull, stream},
};
use futures_util::{StreamExt, TryStreamExt};
use semel_source_nats::NatsDeadLetters;
use semel_store_nats::NatsStore;
use tokio::time::{sleep, timeout};

const STREAM: &str = "CHAOS";
const SUBJECT: &str = "chaos.events";
const CONSUMER: &str = "billing";
const PUBLISHED_AT_ONCE: usize = 256;
/// A server that was restarted answers after it has read its files.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn source_url(server: &str) -> String {
    format!("{}/{STREAM}/{CONSUMER}", server.trim_end_matches('/'))
}

pub(super) async fn store(server: &str) -> Result<NatsStore> {
    Ok(NatsStore::connect(&format!("{}/chaos_ids", server.trim_end_matches('/'))).await?)
}

pub(super) async fn dead_letters(server: &str) -> Result<NatsDeadLetters> {
    let url = format!("{}/CHAOS_DEAD?subject=dead&create=true", server.trim_end_matches('/'));
    Ok(NatsDeadLetters::connect(&url).await?)
}

async fn context(server: &str) -> Result<jetstream::Context> {
    let client = async_nats::connect(server).await.context("cannot connect to the NATS server")?;
    Ok(jetstream::new(client))
}

pub(super) async fn prepare(server: &str) -> Result<()> {
    let config = stream::Config {
        name: STREAM.to_owned(),
        subjects: vec![SUBJECT.to_owned()],
        max_age: Duration::from_secs(3600),
        ..Default::default()
    };
    let made = context(server).await?.create_stream(config).await?;
    let consumer = pull::Config {
        durable_name: Some(CONSUMER.to_owned()),
        ack_wait: Duration::from_secs(2),
        max_ack_pending: 10_000,
        ..Default::default()
    };
    made.create_consumer(consumer).await?;
    // The processes find both, so that none of them is killed while it makes them.
    store(server).await?;
    dead_letters(server).await?;
    Ok(())
}

/// Publishes an event for each id. A message that may be stored is published again: a copy more does not matter.
pub(super) async fn publish(server: &str, ids: &[String]) -> Result<()> {
    let context = context(server).await?;
    futures_util::stream::iter(ids)
        .map(|id| patiently(async || publish_one(&context, id).await))
        .buffer_unordered(PUBLISHED_AT_ONCE)
        .try_collect::<()>()
        .await
}

async fn publish_one(context: &jetstream::Context, id: &str) -> Result<()> {
    let mut headers = HeaderMap::new();
    headers.insert("event_id", id);
    headers.insert("event_type", "OrderPlaced");
    headers.insert("content-type", "application/json");
    let body = serde_json::json!({ "id": id }).to_string();
    context.publish_with_headers(SUBJECT, headers, body.into()).await?.await?;
    Ok(())
}

/// Messages that the consumer has not settled.
pub(super) async fn unsettled(server: &str) -> Result<u64> {
    let context = context(server).await?;
    patiently(async || {
        let consumer =
            context.get_consumer_from_stream::<pull::Config, _, _>(CONSUMER, STREAM).await;
        let mut consumer = consumer.map_err(|error| anyhow!("{error}"))?;
        let info = consumer.info().await?;
        Ok(info.num_pending + info.num_ack_pending as u64)
    })
    .await
}

/// Repeats `call` until it succeeds.
pub(super) async fn patiently<T>(call: impl AsyncFn() -> Result<T>) -> Result<T> {
    let mut last = None;
    let repeated = async {
        loop {
            match call().await {
                Ok(value) => return value,
                Err(error) => last = Some(error),
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let result = timeout(PATIENCE, repeated).await;
    result.map_err(|_| last.unwrap_or_else(|| anyhow!("the server does not answer")))
}
