//! A JetStream stream with one consumer, and dead letters in another stream.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow};
use async_nats::{
    HeaderMap,
    jetstream::{self, consumer::pull, stream},
};
use async_trait::async_trait;
use semel_consumer::{Source, dead_letter::DeadLetterQueue};
use semel_source_nats::{NatsDeadLetters, NatsSource};

use super::{Broker, body, headers, patiently, publish_all};

const STREAM: &str = "CHAOS";
const SUBJECT: &str = "chaos.events";
const CONSUMER: &str = "billing";

pub(super) struct JetStream {
    server: String,
}

impl JetStream {
    pub(super) fn at(url: &str) -> Self {
        Self { server: url.trim_end_matches('/').to_owned() }
    }

    async fn context(&self) -> Result<jetstream::Context> {
        let client = async_nats::connect(&self.server).await;
        Ok(jetstream::new(client.context("cannot connect to the NATS server")?))
    }
}

#[async_trait(?Send)]
impl Broker for JetStream {
    async fn prepare(&self) -> Result<()> {
        let config = stream::Config {
            name: STREAM.to_owned(),
            subjects: vec![SUBJECT.to_owned()],
            max_age: Duration::from_secs(3600),
            ..Default::default()
        };
        let made = self.context().await?.create_stream(config).await?;
        let consumer = pull::Config {
            durable_name: Some(CONSUMER.to_owned()),
            ack_wait: Duration::from_secs(2),
            max_ack_pending: 10_000,
            ..Default::default()
        };
        made.create_consumer(consumer).await?;
        self.dead_letters().await.map(drop)
    }

    async fn publish(&self, ids: &[String]) -> Result<()> {
        let context = self.context().await?;
        publish_all(ids, async |id| publish_one(&context, id).await).await
    }

    async fn unsettled(&self) -> Result<u64> {
        let context = self.context().await?;
        patiently(async || {
            let consumer =
                context.get_consumer_from_stream::<pull::Config, _, _>(CONSUMER, STREAM).await;
            let mut consumer = consumer.map_err(|error| anyhow!("{error}"))?;
            let info = consumer.info().await?;
            Ok(info.num_pending + info.num_ack_pending as u64)
        })
        .await
    }

    async fn source(&self) -> Result<Arc<dyn Source>> {
        let url = format!("{}/{STREAM}/{CONSUMER}", self.server);
        Ok(Arc::new(NatsSource::connect(&url).await?))
    }

    async fn dead_letters(&self) -> Result<Arc<dyn DeadLetterQueue>> {
        let url = format!("{}/CHAOS_DEAD?subject=dead&create=true", self.server);
        Ok(Arc::new(NatsDeadLetters::connect(&url).await?))
    }
}

async fn publish_one(context: &jetstream::Context, id: &str) -> Result<()> {
    let mut map = HeaderMap::new();
    for (name, value) in headers(id) {
        map.insert(name, value);
    }
    context.publish_with_headers(SUBJECT, map, body(id).into()).await?.await?;
    Ok(())
}
