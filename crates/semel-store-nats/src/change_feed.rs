//! Subscribes to all changes of the bucket with a consumer that delivers headers only, and notifies the change feed:
//! waiters then read the key, and caches drop its outcome.
//!
//! A plain subscription to the subjects would get a write before the stream has stored it, and writes that the stream
//! refuses: a waiter would then read the old record. A consumer delivers what is stored, in order and numbered, so a
//! gap is noticed; after a gap, any key may have changed.
//!
//! A consumer delivers every write of every process, which costs a third of the server's throughput. So there is one
//! only while the feed has subscribers: a cache, or a caller that waits for an owner in another process.

use std::{sync::Arc, time::Duration};

use async_nats::{Message, StatusCode, Subscriber};
use futures_util::StreamExt;
use semel_core::{ChangeFeed, Result};
use tokio::time::{Instant, interval, sleep};

use crate::{
    bucket_client::{BucketClient, Via, api_request},
    error::{RequestError, unavailable},
    jetstream_api::{ConsumerConfig, ConsumerInfo, CreateConsumer},
};

const HEARTBEAT: Duration = Duration::from_secs(2);
/// Heartbeats without a subscriber of the feed after which the consumer is given up.
const MAX_IDLE_HEARTBEATS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A subscription to the changes of one store.
#[derive(Debug)]
pub(crate) struct NatsSubscription {
    messages: Subscriber,
    /// The number of messages received.
    received: u64,
}

/// Why a subscription ended.
#[derive(Debug, PartialEq)]
enum SubscriptionEnd {
    MessageMissed,
    NoSubscribers,
}

impl NatsSubscription {
    pub(crate) async fn subscribe(bucket: &BucketClient) -> Result<Self> {
        let inbox = bucket.client().new_inbox();
        let messages = bucket.client().subscribe(inbox.clone()).await.map_err(|error| {
            unavailable("nats: cannot subscribe to the change feed").with_source(error)
        })?;
        let (stream, filter) = (&bucket.names.stream, bucket.names.all_records());
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let config = ConsumerConfig {
            deliver_subject: &inbox,
            deliver_policy: "new",
            ack_policy: "none",
            replay_policy: "instant",
            filter_subject: &filter,
            max_deliver: 1,
            headers_only: true,
            mem_storage: true,
            num_replicas: 1,
            idle_heartbeat: nanos(HEARTBEAT),
            inactive_threshold: nanos(HEARTBEAT * 2),
        };
        let subject = format!("$JS.API.CONSUMER.CREATE.{stream}");
        let request = api_request(subject, &CreateConsumer { stream_name: stream, config });
        let request = request.map_err(RequestError::into_error)?;
        bucket
            .call::<ConsumerInfo>(request, Via::Background)
            .await
            .map_err(RequestError::into_error)?;
        Ok(Self { messages, received: 0 })
    }

    /// Notifies the change feed while it has subscribers. Before a subscription any key may have changed, so the feed
    /// then notifies all subscribers.
    pub(crate) async fn notify(bucket: Arc<BucketClient>, feed: ChangeFeed) {
        let mut pause = FIRST_PAUSE;
        loop {
            feed.until_subscribed().await;
            match Self::subscribe(&bucket).await {
                Ok(mut subscription) => {
                    let _connected = feed.connected();
                    let began = Instant::now();
                    let end = subscription.notify_until_end(&bucket, &feed).await;
                    if began.elapsed() > HEARTBEAT {
                        pause = FIRST_PAUSE;
                    }
                    if end == SubscriptionEnd::NoSubscribers {
                        continue;
                    }
                }
                Err(error) => tracing::debug!(%error, "nats: cannot subscribe to the change feed"),
            }
            sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Notifies the change feed until a message was missed, or the feed has had no subscriber for a while.
    async fn notify_until_end(
        &mut self,
        bucket: &BucketClient,
        feed: &ChangeFeed,
    ) -> SubscriptionEnd {
        let (mut checks, mut idle_heartbeats, mut received_at) =
            (interval(HEARTBEAT), 0, Instant::now());
        loop {
            let message = tokio::select! {
                message = self.messages.next() => message,
                _ = checks.tick() => {
                    idle_heartbeats = if feed.has_subscribers() { 0 } else { idle_heartbeats + 1 };
                    match () {
                        () if received_at.elapsed() > HEARTBEAT * 2 => return SubscriptionEnd::MessageMissed,
                        () if idle_heartbeats > MAX_IDLE_HEARTBEATS => return SubscriptionEnd::NoSubscribers,
                        () => continue,
                    }
                }
            };
            received_at = Instant::now();
            match message {
                Some(message) if self.is_next(&message) => notify_changed(bucket, feed, &message),
                _ => return SubscriptionEnd::MessageMissed,
            }
        }
    }

    /// True if nothing is missing before this message.
    fn is_next(&mut self, message: &Message) -> bool {
        if message.status == Some(StatusCode::IDLE_HEARTBEAT) {
            return last_sent(message).is_none_or(|last| last <= self.received);
        }
        self.received += 1;
        number(message) == Some(self.received)
    }
}

/// Notifies the feed of the message's key. A heartbeat has none.
fn notify_changed(bucket: &BucketClient, feed: &ChangeFeed, message: &Message) {
    if let Some(key) = bucket.names.hash_of(&message.subject) {
        feed.notify(&key);
    }
}

/// The consumer's number of a message. It is part of the subject for an ack:
/// `$JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.NUMBER.time.pending`.
fn number(message: &Message) -> Option<u64> {
    let reply = message.reply.as_ref()?;
    let tokens: Vec<&str> = reply.split('.').collect();
    let at = if tokens.len() > 9 { 8 } else { 6 };
    tokens.get(at)?.parse().ok()
}

/// The number of the last message that the consumer sent, from a heartbeat.
fn last_sent(heartbeat: &Message) -> Option<u64> {
    heartbeat.headers.as_ref()?.get("Nats-Last-Consumer")?.as_str().parse().ok()
}
