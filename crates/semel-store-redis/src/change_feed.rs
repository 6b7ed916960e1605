//! Subscribes to the channel on which other processes publish changed keys, and notifies the change feed: waiters then
//! read the key, and caches drop its outcome.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use semel_core::{ChangeFeed, KeyHash, Result};
use tokio::time::{interval, sleep, timeout};

use crate::{
    error::{command_error, connection_lost, into_error, timed_out},
    settings::RedisSettings,
};

/// How often the connection is checked with a `PING`.
const PING_INTERVAL: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A subscription to the channel of one store.
pub(crate) struct RedisSubscription {
    sink: PubSubSink,
    stream: PubSubStream,
}

impl RedisSubscription {
    /// Subscribes on one server. In a cluster, every server gets the messages of all.
    pub(crate) async fn subscribe(settings: &RedisSettings) -> Result<Self> {
        let subscribed = async {
            let client = settings.client().await?;
            let mut subscription = client.get_async_pubsub().await.map_err(connection_lost)?;
            let reply = subscription.subscribe(&settings.names.channel).await;
            reply.map_err(|error| into_error(command_error(error)))?;
            let (sink, stream) = subscription.split();
            Ok(Self { sink, stream })
        };
        timeout(settings.call_timeout, subscribed).await.map_err(|_| timed_out())?
    }

    /// Notifies the change feed, and subscribes again whenever the connection is lost. Between two subscriptions any
    /// key may have changed, so the feed then notifies all subscribers.
    pub(crate) async fn notify(
        mut subscription: Option<Self>,
        settings: Arc<RedisSettings>,
        feed: ChangeFeed,
    ) {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(subscription) = subscription.take() {
                subscription.notify_until_lost(&settings, &feed).await;
                // The other connections may be lost for the same reason, and an idle connection does not notice that.
                settings.recheck.send_replace(());
                tracing::warn!(
                    "redis: lost the subscription to the change feed; waiters poll until it is back"
                );
                pause = FIRST_PAUSE;
            }
            sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match Self::subscribe(&settings).await {
                Ok(subscribed) => subscription = Some(subscribed),
                Err(error) => tracing::debug!(%error, "redis: cannot subscribe to the change feed"),
            }
        }
    }

    /// Notifies the change feed until the connection is lost.
    async fn notify_until_lost(mut self, settings: &RedisSettings, feed: &ChangeFeed) {
        let _connected = feed.connected();
        let mut pings = interval(PING_INTERVAL);
        loop {
            tokio::select! {
                message = self.stream.next() => {
                    let Some(message) = message else { return };
                    match message.get_payload_bytes().try_into() {
                        Ok(hash) => feed.notify(&KeyHash::from_bytes(hash)),
                        Err(_) => feed.notify_all(),
                    }
                }
                _ = pings.tick() => {
                    let pong = timeout(settings.call_timeout, self.sink.ping::<redis::Value>()).await;
                    if !matches!(pong, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}
