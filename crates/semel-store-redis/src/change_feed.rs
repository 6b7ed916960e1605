//! Hears from other processes that a key changed.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use semel_core::{ChangeFeed, KeyHash, Result};
use tokio::time::{interval, sleep, timeout};

use crate::{
    error::{broken, failed, known, timed_out},
    settings::Plan,
};

/// A silent connection is asked this often whether it is still there.
const ASK_EVERY: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A subscription to the news of one store.
pub(crate) struct News {
    sink: PubSubSink,
    stream: PubSubStream,
}

impl News {
    /// Subscribes on one server; in a cluster any of them hears all.
    pub(crate) async fn subscribe(plan: &Plan) -> Result<Self> {
        let subscribed = async {
            let client = plan.client().await?;
            let mut subscription = client.get_async_pubsub().await.map_err(broken)?;
            let told = subscription.subscribe(&plan.names.channel).await;
            told.map_err(|error| known(failed(error)))?;
            let (sink, stream) = subscription.split();
            Ok(Self { sink, stream })
        };
        timeout(plan.call_timeout, subscribed).await.map_err(|_| timed_out())?
    }

    /// Passes news on for ever. Whatever was missed between two subscriptions may be any key.
    pub(crate) async fn pass_on(mut news: Option<Self>, plan: Arc<Plan>, feed: ChangeFeed) {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(news) = news.take() {
                news.follow(&plan, &feed).await;
                // What ended this connection may have ended the others, which nobody reads from while they are idle.
                plan.check.send_replace(());
                tracing::warn!(
                    "redis: lost the connection for news; waiters poll until it is back"
                );
                pause = FIRST_PAUSE;
            }
            sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match Self::subscribe(&plan).await {
                Ok(subscribed) => news = Some(subscribed),
                Err(error) => tracing::debug!(%error, "redis: no news from other processes"),
            }
        }
    }

    /// Passes news on until the connection is lost.
    async fn follow(mut self, plan: &Plan, feed: &ChangeFeed) {
        let _connected = feed.connected();
        let mut asking = interval(ASK_EVERY);
        loop {
            tokio::select! {
                message = self.stream.next() => {
                    let Some(message) = message else { return };
                    match message.get_payload_bytes().try_into() {
                        Ok(hash) => feed.notify(&KeyHash::from_bytes(hash)),
                        Err(_) => feed.notify_all(),
                    }
                }
                _ = asking.tick() => {
                    let answer = timeout(plan.call_timeout, self.sink.ping::<redis::Value>()).await;
                    if !matches!(answer, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}
