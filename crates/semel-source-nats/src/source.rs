//! Messages of one JetStream consumer.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_nats::Client;
use async_trait::async_trait;
use semel_consumer::{ConsumerPlan, Delivery, ExaminedSource, Message, Source, SourceInfo};
use semel_core::{Finding, Outcome, Result};
use tokio::sync::Notify;

use crate::{
    check,
    config::{NatsSourceBuilder, SourceSettings},
    connection::Connection,
    error,
    given_up::GivenUp,
    jetstream::{ConsumerConfig, ConsumerInfo, JetStream, NewConsumer, StreamConfig},
    pull::Puller,
    receiver::Receiver,
    reply,
};

/// The messages of one durable pull consumer of a JetStream stream.
///
/// ```no_run
/// use semel_source_nats::NatsSource;
///
/// # async fn example() -> semel_core::Result<()> {
/// let source = NatsSource::connect("nats://localhost:4222/ORDERS/billing").await?;
/// # Ok(()) }
/// ```
pub struct NatsSource {
    settings: SourceSettings,
    connection: Connection,
    info: SourceInfo,
    receiver: Arc<Receiver>,
    is_closed: AtomicBool,
    closing: Notify,
}

impl NatsSource {
    /// Connects to `nats://[USER:PASSWORD@]HOST[:PORT]/STREAM/CONSUMER`.
    ///
    /// # Errors
    ///
    /// As [`NatsSourceBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Settings that a URL does not have, or that override it.
    pub fn builder(url: &str) -> NatsSourceBuilder {
        NatsSourceBuilder::new(url)
    }

    /// A source on a connection that the caller has opened, with credentials or certificates of any kind. Closing the
    /// source leaves it open.
    pub fn from_client(
        client: Client,
        stream: impl Into<String>,
        consumer: impl Into<String>,
    ) -> NatsSourceBuilder {
        NatsSourceBuilder::from_client(client, stream.into(), consumer.into())
    }

    pub(crate) async fn open(settings: SourceSettings) -> Result<Self> {
        let connection = settings.connector.connect(settings.domain.as_deref()).await?;
        let opened = Self::on(connection.clone(), settings).await;
        if opened.is_err() {
            // Otherwise the driver would keep the connection for ever. The first error is the one that matters.
            let _ = connection.close().await;
        }
        opened
    }

    async fn on(connection: Connection, settings: SourceSettings) -> Result<Self> {
        let jetstream = &connection.jetstream;
        let names = (settings.stream.as_str(), settings.consumer.as_str());
        let stream = existing_stream(jetstream, names.0).await?;
        let consumer = existing_consumer(jetstream, &settings).await?;
        check::refuse_unfit(&consumer, &settings.consumer)?;
        let SourceSettings { acks, ordering_key, .. } = &settings;
        let given_up = GivenUp::new(jetstream.clone(), names, &stream, ordering_key.clone());
        let puller = Puller::new(jetstream.clone(), names, &consumer);
        let options = (*acks, ordering_key.clone());
        let receiver = Receiver::open(puller, given_up, jetstream.client.clone(), options).await?;
        Ok(Self {
            info: info(&settings, &stream, &consumer),
            receiver,
            is_closed: AtomicBool::new(false),
            closing: Notify::new(),
            connection,
            settings,
        })
    }

    pub(crate) async fn examine(
        settings: SourceSettings,
        plan: &ConsumerPlan,
    ) -> Result<ExaminedSource> {
        let connection = settings.connector.connect(settings.domain.as_deref()).await?;
        let examined = examined(&connection.jetstream, &settings, plan).await;
        let closed = connection.close().await;
        examined.and_then(|examined| closed.map(|()| examined))
    }

    async fn consumer(&self) -> Result<ConsumerInfo> {
        let SourceSettings { stream, consumer, .. } = &self.settings;
        let info = self.connection.jetstream.consumer_info(stream, consumer).await?;
        info.ok_or_else(|| error::no_consumer(stream, consumer))
    }
}

#[async_trait]
impl Source for NatsSource {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>> {
        let closing = self.closing.notified();
        if self.is_closed.load(SeqCst) {
            return Ok(Vec::new());
        }
        tokio::select! {
            () = closing => Ok(Vec::new()),
            deliveries = self.receiver.next(max.max(1)) => deliveries,
        }
    }

    fn info(&self) -> SourceInfo {
        self.info.clone()
    }

    async fn lag(&self) -> Result<Option<u64>> {
        Ok(Some(self.consumer().await?.num_pending))
    }

    async fn reply(&self, message: &Message, outcome: &Outcome) -> Result<()> {
        reply::send(self.connection.client(), message, outcome).await
    }

    async fn check(&self, plan: &ConsumerPlan) -> Result<Vec<Finding>> {
        let stream = existing_stream(&self.connection.jetstream, &self.settings.stream).await?;
        let consumer = self.consumer().await?.config;
        Ok(check::findings(&self.settings, &stream, &consumer, plan))
    }

    /// Gives back what was received and not returned, and closes the connection unless it is the caller's.
    async fn close(&self) -> Result<()> {
        self.is_closed.store(true, SeqCst);
        self.closing.notify_waiters();
        let given_back = self.receiver.close().await;
        given_back.and(self.connection.close().await)
    }
}

async fn existing_stream(jetstream: &JetStream, name: &str) -> Result<StreamConfig> {
    let info = jetstream.stream_info(name).await?;
    Ok(info.ok_or_else(|| error::no_stream(name))?.config)
}

async fn examined(
    jetstream: &JetStream,
    settings: &SourceSettings,
    plan: &ConsumerPlan,
) -> Result<ExaminedSource> {
    let SourceSettings { stream: stream_name, consumer: name, .. } = settings;
    let stream = existing_stream(jetstream, stream_name).await?;
    let Some(consumer) = jetstream.consumer_info(stream_name, name).await? else {
        if !settings.create {
            return Err(error::no_consumer(stream_name, name));
        }
        let what = format!("consumer {name} does not exist yet; the first start creates it");
        let info = info(settings, &stream, &ConsumerConfig::default());
        return Ok(ExaminedSource { info, findings: vec![Finding::good(what)] });
    };
    check::refuse_unfit(&consumer.config, name)?;
    Ok(ExaminedSource {
        info: info(settings, &stream, &consumer.config),
        findings: check::findings(settings, &stream, &consumer.config, plan),
    })
}

/// The consumer's settings; it is created if that was asked for.
async fn existing_consumer(
    jetstream: &JetStream,
    settings: &SourceSettings,
) -> Result<ConsumerConfig> {
    let SourceSettings { stream, consumer, .. } = settings;
    if let Some(info) = jetstream.consumer_info(stream, consumer).await? {
        return Ok(info.config);
    }
    if !settings.create {
        return Err(error::no_consumer(stream, consumer));
    }
    let ack_wait = settings.ack_wait.unwrap_or(NatsSourceBuilder::ACK_WAIT);
    let (filter_subject, filter_subjects) = match &settings.filter_subjects[..] {
        // Servers before 2.10 know only one filter.
        [one] => (Some(one.as_str()), &[][..]),
        any => (None, any),
    };
    let config = NewConsumer {
        durable_name: consumer,
        deliver_policy: "all",
        ack_policy: "explicit",
        replay_policy: "instant",
        ack_wait: u64::try_from(ack_wait.as_nanos()).unwrap_or(u64::MAX),
        max_deliver: -1,
        filter_subject,
        filter_subjects,
    };
    jetstream.create_consumer(stream, &config).await?;
    let info = jetstream.consumer_info(stream, consumer).await?;
    Ok(info.ok_or_else(|| error::no_consumer(stream, consumer))?.config)
}

fn info(settings: &SourceSettings, stream: &StreamConfig, consumer: &ConsumerConfig) -> SourceInfo {
    let max_age = Duration::from_nanos(stream.max_age);
    SourceInfo {
        name: format!("nats {}/{}", settings.stream, settings.consumer),
        ack_deadline: Some(check::ack_deadline(consumer)).filter(|deadline| !deadline.is_zero()),
        redelivery_window: Some(max_age).filter(|age| !age.is_zero()),
    }
}

impl fmt::Debug for NatsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSource").field("info", &self.info).finish_non_exhaustive()
    }
}
