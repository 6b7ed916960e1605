//! A source that counts what is settled. Joining the group, which takes as long for a bare consumer, is not measured.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use async_trait::async_trait;
use semel_consumer::{
    Consumer, ConsumerBuilder, ConsumerPlan, Delivery, Message, Settlement, Source, SourceInfo,
};
use semel_core::{Finding, Outcome};
use semel_source_kafka::KafkaSource;
use tokio::sync::Notify;

use crate::topic::BenchTopic;

/// Runs a consumer until all messages of the topic are acknowledged. Returns how many there were per second, from the
/// first one that was received to the last acknowledgement.
pub(crate) async fn rate(
    topic: &BenchTopic,
    messages: u64,
    finish: impl FnOnce(ConsumerBuilder) -> semel_core::Result<Consumer>,
) -> Result<f64> {
    let progress = Arc::new(Progress { messages, ..Progress::default() });
    let inner = KafkaSource::connect(&topic.source_url()).await?;
    let source = CountedSource { inner, progress: progress.clone() };
    let consumer = finish(Consumer::builder(source).name("bench").drop_dead_letters())?;
    let control = consumer.control();
    let mut running = tokio::spawn(consumer.run());
    tokio::select! {
        () = progress.is_done.notified() => control.stop(),
        ended = &mut running => {
            ended??;
            anyhow::bail!("the consumer ended early");
        }
    }
    running.await??;
    let first = progress.first.get().context("nothing was received")?;
    let last = progress.last.get().context("not all messages were acknowledged")?;
    Ok(messages as f64 / (*last - *first).as_secs_f64())
}

#[derive(Debug, Default)]
struct Progress {
    messages: u64,
    acknowledged: AtomicU64,
    first: OnceLock<Instant>,
    last: OnceLock<Instant>,
    is_done: Notify,
}

#[derive(Debug)]
struct CountedSource {
    inner: KafkaSource,
    progress: Arc<Progress>,
}

struct CountedSettlement {
    inner: Arc<dyn Settlement>,
    progress: Arc<Progress>,
}

#[async_trait]
impl Source for CountedSource {
    async fn receive(&self, max: usize) -> semel_core::Result<Vec<Delivery>> {
        let received = self.inner.receive(max).await?;
        self.progress.first.get_or_init(Instant::now);
        let count = |delivery: Delivery| {
            let (message, inner) = delivery.into_parts();
            Delivery::new(message, CountedSettlement { inner, progress: self.progress.clone() })
        };
        Ok(received.into_iter().map(count).collect())
    }

    fn info(&self) -> SourceInfo {
        self.inner.info()
    }

    async fn lag(&self) -> semel_core::Result<Option<u64>> {
        self.inner.lag().await
    }

    async fn reply(&self, message: &Message, outcome: &Outcome) -> semel_core::Result<()> {
        self.inner.reply(message, outcome).await
    }

    async fn check(&self, plan: &ConsumerPlan) -> semel_core::Result<Vec<Finding>> {
        self.inner.check(plan).await
    }

    async fn close(&self) -> semel_core::Result<()> {
        self.inner.close().await
    }
}

#[async_trait]
impl Settlement for CountedSettlement {
    async fn ack(&self) -> semel_core::Result<()> {
        self.inner.ack().await?;
        if self.progress.acknowledged.fetch_add(1, SeqCst) + 1 == self.progress.messages {
            self.progress.last.get_or_init(Instant::now);
            self.progress.is_done.notify_one();
        }
        Ok(())
    }

    async fn nack(&self, delay: Duration) -> semel_core::Result<()> {
        self.inner.nack(delay).await
    }

    async fn reject(&self, reason: &str) -> semel_core::Result<()> {
        self.inner.reject(reason).await
    }

    async fn extend(&self) -> semel_core::Result<()> {
        self.inner.extend().await
    }
}
