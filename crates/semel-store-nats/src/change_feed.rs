//! Hears of every change, by a consumer of the bucket that has only headers.
//!
//! A plain subscription would hear of a write before the stream took it, and of writes that it refuses: who
//! is woken then still reads what was before. A consumer tells what is stored, in order and counted, so a
//! gap is noticed, and then any key may have changed.
//!
//! A consumer brings every write of every process back, which takes a third of what the server can do. So there
//! is one only while somebody listens: a cache, or a caller that waits for another process.

use std::{sync::Arc, time::Duration};

use async_nats::{Message, StatusCode, Subscriber};
use futures_util::StreamExt;
use semel_core::{ChangeFeed, Result};
use tokio::time::{Instant, interval, sleep};

use crate::{
    bucket_client::{Link, Over, asking},
    error::{Trouble, unavailable},
    jetstream_api::{Consume, Consumer, Consuming},
};

const HEARTBEAT: Duration = Duration::from_secs(2);
/// So many heartbeats without anybody who listens, and the news are not asked for any more.
const PATIENCE: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A subscription to the news of one store.
#[derive(Debug)]
pub(crate) struct News {
    messages: Subscriber,
    /// Messages that were heard.
    heard: u64,
}

/// Why a subscription is over.
#[derive(Debug, PartialEq)]
enum End {
    Missed,
    Unheeded,
}

impl News {
    pub(crate) async fn subscribe(link: &Link) -> Result<Self> {
        let inbox = link.client().new_inbox();
        let messages = link.client().subscribe(inbox.clone()).await.map_err(|error| {
            unavailable("nats: no news from other processes").with_source(error)
        })?;
        let (stream, filter) = (&link.names.stream, link.names.all_records());
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let config = Consumer {
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
        let ask = asking(subject, &Consume { stream_name: stream, config });
        let ask = ask.map_err(Trouble::into_error)?;
        link.ask::<Consuming>(ask, Over::Own).await.map_err(Trouble::into_error)?;
        Ok(Self { messages, heard: 0 })
    }

    /// Passes news on, whenever somebody listens. Whatever was missed before a subscription may be any key.
    pub(crate) async fn pass_on(link: Arc<Link>, feed: ChangeFeed) {
        let mut pause = FIRST_PAUSE;
        loop {
            feed.until_subscribed().await;
            match Self::subscribe(&link).await {
                Ok(mut news) => {
                    let _connected = feed.connected();
                    let began = Instant::now();
                    let end = news.follow(&link, &feed).await;
                    if began.elapsed() > HEARTBEAT {
                        pause = FIRST_PAUSE;
                    }
                    if end == End::Unheeded {
                        continue;
                    }
                }
                Err(error) => tracing::debug!(%error, "nats: no news from other processes"),
            }
            sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Passes news on until some were missed, or nobody has listened for a while.
    async fn follow(&mut self, link: &Link, feed: &ChangeFeed) -> End {
        let (mut looks, mut unheeded, mut heard_at) = (interval(HEARTBEAT), 0, Instant::now());
        loop {
            let message = tokio::select! {
                message = self.messages.next() => message,
                _ = looks.tick() => {
                    unheeded = if feed.has_subscribers() { 0 } else { unheeded + 1 };
                    match () {
                        () if heard_at.elapsed() > HEARTBEAT * 2 => return End::Missed,
                        () if unheeded > PATIENCE => return End::Unheeded,
                        () => continue,
                    }
                }
            };
            heard_at = Instant::now();
            match message {
                Some(message) if self.is_next(&message) => tell(link, feed, &message),
                _ => return End::Missed,
            }
        }
    }

    /// True if nothing is missing before this message.
    fn is_next(&mut self, message: &Message) -> bool {
        if message.status == Some(StatusCode::IDLE_HEARTBEAT) {
            return last_told(message).is_none_or(|last| last <= self.heard);
        }
        self.heard += 1;
        number(message) == Some(self.heard)
    }
}

/// A heartbeat names no key.
fn tell(link: &Link, feed: &ChangeFeed, message: &Message) {
    if let Some(key) = link.names.hash_of(&message.subject) {
        feed.notify(&key);
    }
}

/// The consumer's number of a message, which is in the subject that an ack would go to:
/// `$JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.NUMBER.time.pending`.
fn number(message: &Message) -> Option<u64> {
    let reply = message.reply.as_ref()?;
    let tokens: Vec<&str> = reply.split('.').collect();
    let at = if tokens.len() > 9 { 8 } else { 6 };
    tokens.get(at)?.parse().ok()
}

/// The number of the last message that was sent, as a heartbeat has it.
fn last_told(heartbeat: &Message) -> Option<u64> {
    heartbeat.headers.as_ref()?.get("Nats-Last-Consumer")?.as_str().parse().ok()
}
