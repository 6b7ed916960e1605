//! Records of one consumer group.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use semel_consumer::{ConsumerPlan, Delivery, Message, Source, SourceInfo};
use semel_core::{Finding, Outcome, Result};
use tokio::sync::{Mutex, oneshot};

use crate::{
    check,
    client::Reports,
    config::{KafkaSourceBuilder, SourceSettings},
    error,
    fetch_queue::FetchQueue,
    poll_thread::{self, KafkaConsumer, PollThread, Polling, blocking},
    reply::Replies,
    topic::{self, TopicSettings},
};

/// The records of one consumer group, from one or several topics.
///
/// ```no_run
/// use semel_source_kafka::KafkaSource;
///
/// # async fn example() -> semel_core::Result<()> {
/// let source = KafkaSource::connect("kafka://localhost:9092/orders?group=billing").await?;
/// # Ok(()) }
/// ```
pub struct KafkaSource {
    settings: SourceSettings,
    info: SourceInfo,
    queue: Arc<FetchQueue>,
    reports: Reports,
    consumer: std::sync::Weak<KafkaConsumer>,
    ended: Mutex<Option<oneshot::Receiver<()>>>,
    replies: Replies,
}

impl KafkaSource {
    /// Connects to `kafka://[USER:PASSWORD@]HOST[:PORT]/TOPIC?group=GROUP`.
    ///
    /// # Errors
    ///
    /// As [`KafkaSourceBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Settings that a URL does not have, or that override it.
    pub fn builder(url: &str) -> KafkaSourceBuilder {
        KafkaSourceBuilder::new(url)
    }

    pub(crate) async fn open(settings: SourceSettings) -> Result<Self> {
        let (queue, reports) = (Arc::new(FetchQueue::default()), Reports::default());
        let thread = PollThread {
            config: settings.client_config()?,
            topics: settings.topics.clone(),
            ordering_key: settings.ordering_key.clone(),
            window: settings.window,
            drain: settings.drain,
            queue: queue.clone(),
            reports: reports.clone(),
        };
        for topic in &settings.topics {
            topic::find(&settings.cluster, topic).await?;
        }
        let topics = settings.topic_settings().await?;
        let Polling { consumer, ended } = thread.start().await?;
        let replies = Replies::new(settings.cluster.clone());
        let info = info(&settings, &topics);
        Ok(Self {
            settings,
            info,
            queue,
            reports,
            consumer,
            ended: Mutex::new(Some(ended)),
            replies,
        })
    }

    /// Runs `work` with the driver's consumer.
    async fn with_consumer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&KafkaConsumer, &FetchQueue, &Reports) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (consumer, queue) = (self.consumer.clone(), self.queue.clone());
        let reports = self.reports.clone();
        blocking(move || {
            let consumer = consumer.upgrade().ok_or_else(error::closed)?;
            work(&consumer, &queue, &reports)
        })
        .await
    }
}

#[async_trait]
impl Source for KafkaSource {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>> {
        self.queue.receive(max.max(1)).await
    }

    fn info(&self) -> SourceInfo {
        self.info.clone()
    }

    async fn lag(&self) -> Result<Option<u64>> {
        self.with_consumer(poll_thread::lag).await.map(Some)
    }

    async fn reply(&self, message: &Message, outcome: &Outcome) -> Result<()> {
        self.replies.send(message, outcome).await
    }

    async fn check(&self, plan: &ConsumerPlan) -> Result<Vec<Finding>> {
        let topics = self.settings.topic_settings().await?;
        Ok(check::findings(&self.settings, &topics, plan))
    }

    /// Commits what is done, and leaves the group.
    async fn close(&self) -> Result<()> {
        self.queue.close();
        let mut ended = self.ended.lock().await;
        if let Some(ended) = &mut *ended {
            // It never sends anything: it is dropped when the thread ends.
            let _ = ended.await;
        }
        *ended = None;
        Ok(())
    }
}

impl Drop for KafkaSource {
    /// Ends the thread, which commits what is done and leaves the group.
    fn drop(&mut self) {
        self.queue.close();
    }
}

pub(crate) fn info(settings: &SourceSettings, topics: &[TopicSettings]) -> SourceInfo {
    let windows: Option<Vec<Duration>> =
        topics.iter().map(TopicSettings::redelivery_window).collect();
    SourceInfo {
        name: format!("kafka {}/{}", settings.topics.join(","), settings.group),
        // Kafka waits for as long as the consumer lives.
        ack_deadline: None,
        redelivery_window: windows.and_then(|windows| windows.into_iter().max()),
    }
}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSource").field("info", &self.info).finish_non_exhaustive()
    }
}
