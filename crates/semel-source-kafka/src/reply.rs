//! Sends the recorded outcome of a message to the topic that its producer named.

use semel_consumer::{Message, reply_headers};
use semel_core::{Body, Outcome, Result};
use tokio::sync::OnceCell;

use crate::{
    client::Cluster,
    error,
    producer::{NewRecord, Producer},
    url::is_topic,
};

/// Sends replies, with a producer that is made for the first one.
#[derive(Debug)]
pub(crate) struct Replies {
    cluster: Cluster,
    producer: OnceCell<Producer>,
}

impl Replies {
    pub(crate) const fn new(cluster: Cluster) -> Self {
        Self { cluster, producer: OnceCell::const_new() }
    }

    /// Sends `outcome`, if `message` names a topic. A reply that can never be sent is given up, with a warning: the
    /// producer chose the topic, and its message must not come again for ever because of that.
    pub(crate) async fn send(&self, message: &Message, outcome: &Outcome) -> Result<()> {
        let Some(topic) = &message.reply_to else { return Ok(()) };
        let position = &message.position;
        if !is_allowed(topic) {
            tracing::warn!(position, "kafka: the message names no topic that can be replied to");
            return Ok(());
        }
        let producer = self.producer.get_or_try_init(async || Producer::new(&self.cluster)).await?;
        let record = NewRecord {
            topic,
            key: message.record_key.as_deref(),
            payload: Some(match outcome.body() {
                Body::Kept(bytes) => bytes,
                Body::Omitted { .. } => &[],
            }),
            headers: &reply_headers(message, outcome),
        };
        match producer.produce(record).await {
            Err(error) if error::is_of_the_message(&error) => {
                tracing::warn!(position, "the reply cannot be sent: {error}");
                Ok(())
            }
            result => result,
        }
    }
}

/// Topics that begin with two underscores belong to Kafka. A producer must not use this worker's permissions to change
/// them.
fn is_allowed(topic: &str) -> bool {
    is_topic(topic) && !topic.starts_with("__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_of_kafka_itself_is_not_replied_to() {
        assert!(is_allowed("replies"));
        for topic in ["__consumer_offsets", "", "a b", "a/b"] {
            assert!(!is_allowed(topic), "{topic:?}");
        }
    }
}
