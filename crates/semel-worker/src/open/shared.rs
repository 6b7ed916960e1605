//! Sources and sinks whose type only the URL knows.

use std::sync::Arc;

use async_trait::async_trait;
use semel::{Finding, Outcome, Result};
use semel_consumer::{
    ConsumerPlan, Delivery, Message, Source, SourceInfo,
    dead_letter::{DeadLetter, DeadLetterQueue, DeadLetterSink},
};

/// A source of any broker. Clones are the same source.
#[derive(Clone, Debug)]
pub struct SharedSource(pub Arc<dyn Source>);

#[async_trait]
impl Source for SharedSource {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>> {
        self.0.receive(max).await
    }

    fn info(&self) -> SourceInfo {
        self.0.info()
    }

    async fn lag(&self) -> Result<Option<u64>> {
        self.0.lag().await
    }

    async fn reply(&self, message: &Message, outcome: &Outcome) -> Result<()> {
        self.0.reply(message, outcome).await
    }

    async fn check(&self, plan: &ConsumerPlan) -> Result<Vec<Finding>> {
        self.0.check(plan).await
    }

    async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}

/// Dead letters of any kind. Clones are the same dead letters.
#[derive(Clone, Debug)]
pub struct SharedSink(pub Arc<dyn DeadLetterQueue>);

#[async_trait]
impl DeadLetterSink for SharedSink {
    async fn publish(&self, letter: &DeadLetter) -> Result<()> {
        self.0.publish(letter).await
    }

    async fn check(&self) -> Result<()> {
        self.0.check().await
    }

    fn name(&self) -> String {
        self.0.name()
    }
}
