//! Apache Kafka, by URL.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use semel::Finding;
use semel_consumer::{
    ConsumerPlan, ExaminedSource, Source,
    dead_letter::{DeadLetterQueue, MessagePublisher},
};
use semel_source_kafka::{KafkaDeadLetters, KafkaPublisher, KafkaSource};

use super::{OnMissing, broker::Broker};

/// Apache Kafka: topics with a consumer group.
pub(super) struct Kafka;

#[async_trait]
impl Broker for Kafka {
    fn check_source(&self, url: &str) -> Result<()> {
        Ok(KafkaSource::builder(url).validate()?)
    }

    fn check_dead_letters(&self, url: &str) -> Result<()> {
        Ok(KafkaDeadLetters::builder(url).validate()?)
    }

    async fn source(&self, url: &str) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(KafkaSource::connect(url).await?))
    }

    async fn dead_letters(
        &self,
        url: &str,
        on_missing: OnMissing,
    ) -> Result<Arc<dyn DeadLetterQueue>> {
        let letters = KafkaDeadLetters::builder(url);
        let letters = match on_missing {
            OnMissing::Create | OnMissing::CreateIfRequested => letters,
            OnMissing::Fail => letters.create(false),
        };
        Ok(Arc::new(letters.connect().await?))
    }

    async fn publisher(&self, url: &str) -> Result<Arc<dyn MessagePublisher>> {
        Ok(Arc::new(KafkaPublisher::connect(url).await?))
    }

    async fn examine_source(&self, url: &str, plan: &ConsumerPlan) -> Result<ExaminedSource> {
        Ok(KafkaSource::builder(url).examine(plan).await?)
    }

    async fn examine_dead_letters(&self, url: &str) -> Result<Vec<Finding>> {
        Ok(KafkaDeadLetters::builder(url).examine().await?)
    }
}
