//! Messages that the server does not deliver any more, because they reached `max_deliver`.
//!
//! The server reports such a message once, in an advisory that is lost if nothing subscribes to it. Each worker of the
//! consumer receives the advisory and remembers the message until it is settled; their claims of the event decide which
//! one makes the dead letter.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_nats::Subscriber;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use parking_lot::Mutex;
use semel_consumer::{Delivery, Settlement};
use semel_core::Result;
use serde::Deserialize;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    ack_subject::late_ack_subject,
    error,
    jetstream::{GetMessage, JetStream, StreamConfig, settle},
    message::{self, OrderingKey},
};

/// More messages than this are not remembered: then the oldest is forgotten.
const CAPACITY: usize = 10_000;
/// The pause before a message that could not be read is read again.
const PAUSE: Duration = Duration::from_secs(1);

/// The report of the server.
#[derive(Deserialize)]
struct Advisory {
    stream_seq: u64,
    deliveries: u64,
}

/// A message that the server has given up on.
#[derive(Clone, Copy, Debug)]
struct GivenUpMessage {
    sequence: u64,
    deliveries: u32,
    due_at: Instant,
}

/// The messages that one consumer's server has given up on.
pub(crate) struct GivenUp {
    jetstream: JetStream,
    stream: String,
    consumer: String,
    retention: RetentionPolicy,
    ordering_key: OrderingKey,
    waiting: Mutex<VecDeque<GivenUpMessage>>,
    changed: Notify,
}

/// What becomes of a message that a consumer has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetentionPolicy {
    /// It stays.
    Limits,
    /// It is removed when all consumers have acknowledged it.
    Interest,
    /// It is removed.
    WorkQueue,
}

impl RetentionPolicy {
    fn of(config: &StreamConfig) -> Self {
        match config.retention.as_str() {
            "workqueue" => Self::WorkQueue,
            "interest" => Self::Interest,
            _ => Self::Limits,
        }
    }
}

impl GivenUp {
    pub(crate) fn new(
        jetstream: JetStream,
        (stream, consumer): (&str, &str),
        config: &StreamConfig,
        ordering_key: OrderingKey,
    ) -> Self {
        Self {
            jetstream,
            stream: stream.to_owned(),
            consumer: consumer.to_owned(),
            retention: RetentionPolicy::of(config),
            ordering_key,
            waiting: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Subscribes to the server's advisories.
    pub(crate) async fn subscribe(&self) -> Result<Subscriber> {
        let subject =
            format!("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{}.{}", self.stream, self.consumer);
        let subscriber = self.jetstream.client.subscribe(subject).await;
        subscriber.map_err(|error| error::connection_lost().with_source(error))
    }

    /// Waits for a message that the server has given up on. The future can be dropped.
    pub(crate) async fn next(self: &Arc<Self>, advisories: &mut Subscriber) -> Delivery {
        loop {
            let next = self.waiting.lock().front().copied();
            let due_at = next.map_or_else(|| Instant::now() + PAUSE, |next| next.due_at);
            tokio::select! {
                biased;
                Some(advisory) = advisories.next() => self.on_advisory(&advisory.payload),
                () = self.changed.notified() => {}
                () = sleep_until(due_at), if next.is_some() => {
                    if let Some(delivery) = self.first_due().await {
                        return delivery;
                    }
                }
            }
        }
    }

    fn on_advisory(&self, payload: &[u8]) {
        match serde_json::from_slice::<Advisory>(payload) {
            Ok(advisory) => self.push(GivenUpMessage {
                sequence: advisory.stream_seq,
                deliveries: u32::try_from(advisory.deliveries).unwrap_or(u32::MAX),
                due_at: Instant::now(),
            }),
            Err(error) => tracing::warn!(%error, "nats: an advisory is not understood"),
        }
    }

    /// Keeps the list sorted by time.
    fn push(&self, message: GivenUpMessage) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= CAPACITY
            && let Some(lost) = waiting.pop_front()
        {
            let GivenUpMessage { sequence, .. } = lost;
            tracing::error!(
                stream = self.stream,
                sequence,
                "nats: too many given-up messages; this one is skipped"
            );
        }
        let at = waiting.partition_point(|other| other.due_at <= message.due_at);
        waiting.insert(at, message);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Reads the first message. It leaves the list only after that, so that nothing is lost if the future is dropped.
    async fn first_due(self: &Arc<Self>) -> Option<Delivery> {
        let first = self.waiting.lock().front().copied()?;
        let which = GetMessage { seq: Some(first.sequence), ..GetMessage::default() };
        let read = self.jetstream.message(&self.stream, &which).await;
        self.waiting.lock().retain(|it| it.sequence != first.sequence);
        match read {
            Ok(Some(stored)) => {
                let message =
                    message::given_up(stored, &self.stream, first.deliveries, &self.ordering_key);
                let settlement = GivenUpSettlement {
                    given_up: self.clone(),
                    message: first,
                    is_settled: AtomicBool::new(false),
                };
                Some(Delivery::new(message, settlement))
            }
            // It was removed, by its age or by another worker that settled it.
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(%error, sequence = first.sequence, "nats: a given-up message cannot be read yet");
                self.push(GivenUpMessage { due_at: Instant::now() + PAUSE, ..first });
                None
            }
        }
    }

    /// Removes the message from a stream that keeps only what is not acknowledged yet.
    async fn remove(&self, message: GivenUpMessage) -> Result<()> {
        match self.retention {
            RetentionPolicy::Limits => Ok(()),
            // Other consumers may still need it: the server decides.
            RetentionPolicy::Interest => {
                let GivenUpMessage { sequence, deliveries, .. } = message;
                let subject = late_ack_subject(&self.stream, &self.consumer, sequence, deliveries);
                settle(&self.jetstream.client, &subject, Bytes::from_static(b"+ACK")).await
            }
            RetentionPolicy::WorkQueue => {
                self.jetstream.delete_message(&self.stream, message.sequence).await.map(drop)
            }
        }
    }
}

struct GivenUpSettlement {
    given_up: Arc<GivenUp>,
    message: GivenUpMessage,
    is_settled: AtomicBool,
}

impl GivenUpSettlement {
    /// The server does not deliver the message again, so it comes again from here.
    fn again(&self, delay: Duration) {
        let now = Instant::now();
        let due_at = now.checked_add(delay).unwrap_or(now + PAUSE);
        self.given_up.push(GivenUpMessage { due_at, ..self.message });
    }

    async fn done(&self) -> Result<()> {
        self.given_up.remove(self.message).await?;
        self.is_settled.store(true, SeqCst);
        Ok(())
    }
}

#[async_trait]
impl Settlement for GivenUpSettlement {
    async fn ack(&self) -> Result<()> {
        self.done().await
    }

    async fn nack(&self, delay: Duration) -> Result<()> {
        if !self.is_settled.swap(true, SeqCst) {
            self.again(delay);
        }
        Ok(())
    }

    async fn reject(&self, _: &str) -> Result<()> {
        self.done().await
    }

    /// It has no deadline.
    async fn extend(&self) -> Result<()> {
        Ok(())
    }
}

/// A message that was dropped, or whose acknowledgement failed, comes again.
impl Drop for GivenUpSettlement {
    fn drop(&mut self) {
        if !self.is_settled.swap(true, SeqCst) {
            self.again(PAUSE);
        }
    }
}
