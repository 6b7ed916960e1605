//! NATS JetStream, by URL.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use semel::Finding;
use semel_consumer::{
    ConsumerPlan, ExaminedSource, Source,
    dead_letter::{DeadLetterQueue, MessagePublisher},
};
use semel_source_nats::{NatsDeadLetters, NatsPublisher, NatsSource};

use super::{OnMissing, broker::Broker};

/// NATS JetStream: a stream with a durable pull consumer.
pub(super) struct Nats;

#[async_trait]
impl Broker for Nats {
    fn check_source(&self, url: &str) -> Result<()> {
        Ok(NatsSource::builder(url).validate()?)
    }

    fn check_dead_letters(&self, url: &str) -> Result<()> {
        Ok(NatsDeadLetters::builder(url).validate()?)
    }

    async fn source(&self, url: &str) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(NatsSource::connect(url).await?))
    }

    async fn dead_letters(
        &self,
        url: &str,
        on_missing: OnMissing,
    ) -> Result<Arc<dyn DeadLetterQueue>> {
        let letters = NatsDeadLetters::builder(url);
        let letters = match on_missing {
            OnMissing::Create | OnMissing::CreateIfRequested => letters,
            OnMissing::Fail => letters.create(false),
        };
        Ok(Arc::new(letters.connect().await?))
    }

    async fn publisher(&self, url: &str) -> Result<Arc<dyn MessagePublisher>> {
        Ok(Arc::new(NatsPublisher::connect(url).await?))
    }

    async fn examine_source(&self, url: &str, plan: &ConsumerPlan) -> Result<ExaminedSource> {
        Ok(NatsSource::builder(url).examine(plan).await?)
    }

    async fn examine_dead_letters(&self, url: &str) -> Result<Vec<Finding>> {
        Ok(NatsDeadLetters::builder(url).examine().await?)
    }
}
