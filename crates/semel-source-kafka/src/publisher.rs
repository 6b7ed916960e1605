//! Publishes messages to their topics.

use async_trait::async_trait;
use semel_consumer::{Message, dead_letter::MessagePublisher};
use semel_core::{Error, Header, Result};

use crate::{
    client::Cluster,
    message::{MESSAGE_ID_HEADERS, REPLY_TO_HEADERS},
    producer::{NewRecord, Producer},
    url::{KafkaUrl, is_topic},
};

const EXAMPLE: &str = "kafka://HOST:9092, kafka://HOST,HOST or kafka+tls://USER:PASSWORD@HOST";

/// Publishes messages to Kafka: to the topic of the message, with its key and its headers, and waits until the brokers
/// have stored it. For redriving dead letters.
///
/// A tombstone is published as one. The key of the record is [`Message::record_key`]; the ordering key is not sent,
/// because a source finds it again where it found it before.
#[derive(Clone, Debug)]
pub struct KafkaPublisher {
    producer: Producer,
}

impl KafkaPublisher {
    /// Connects to `kafka://[USER:PASSWORD@]HOST[:PORT]`. The URL of a source will do, too: the rest of it is ignored.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when the URL is wrong.
    pub async fn connect(url: &str) -> Result<Self> {
        let KafkaUrl { address, .. } = KafkaUrl::parse(url, EXAMPLE)?;
        Ok(Self { producer: Producer::new(&Cluster::new(address))? })
    }
}

#[async_trait]
impl MessagePublisher for KafkaPublisher {
    async fn publish(&self, message: &Message) -> Result<()> {
        if !is_topic(&message.topic) {
            return Err(Error::invalid(format!(
                "kafka: {:?} is no topic to publish to",
                message.topic
            )));
        }
        let headers = headers_of(message);
        let record = NewRecord {
            topic: &message.topic,
            key: message.record_key.as_deref(),
            payload: (!message.is_tombstone).then_some(&message.body[..]),
            headers: &headers,
        };
        self.producer.produce(record).await
    }
}

/// The headers of the message, with those that the fields decide.
fn headers_of(message: &Message) -> Vec<Header> {
    let is_id =
        |it: &&Header| MESSAGE_ID_HEADERS.iter().any(|name| it.name.eq_ignore_ascii_case(name));
    let mut headers: Vec<_> = message.headers.iter().filter(|it| !is_id(it)).cloned().collect();
    if let Some(id) = &message.message_id {
        let old = message.headers.iter().find(is_id);
        let name = old.map_or(MESSAGE_ID_HEADERS[0], |old| &old.name).to_owned();
        headers.push(Header { name, value: id.clone().into() });
    }
    let has_reply_to = REPLY_TO_HEADERS.iter().any(|name| message.header(name).is_some());
    if let Some(reply_to) = message.reply_to.as_ref().filter(|_| !has_reply_to) {
        headers
            .push(Header { name: REPLY_TO_HEADERS[0].to_owned(), value: reply_to.clone().into() });
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(message: &Message) -> Vec<(String, String)> {
        let text = |it: Header| (it.name, String::from_utf8(it.value.to_vec()).unwrap());
        headers_of(message).into_iter().map(text).collect()
    }

    #[test]
    fn a_new_id_takes_the_place_of_the_original_one() {
        let message = Message::new("orders", "x")
            .with_header("message_id", "old")
            .with_header("Tenant", "t")
            .with_id("new");
        let wanted = [("Tenant", "t"), ("message_id", "new")];
        assert_eq!(sent(&message), wanted.map(|(name, value)| (name.into(), value.into())));
        let without = Message::new("orders", "x").with_id("new");
        assert_eq!(sent(&without), [("Message-Id".to_owned(), "new".to_owned())]);
    }

    #[test]
    fn an_address_for_replies_is_sent_once() {
        let message = Message { reply_to: Some("r".into()), ..Message::new("orders", "x") };
        assert_eq!(sent(&message), [("Semel-Reply-To".to_owned(), "r".to_owned())]);
        let message = message.with_header("Reply-To", "r");
        assert_eq!(sent(&message), [("Reply-To".to_owned(), "r".to_owned())]);
    }
}
