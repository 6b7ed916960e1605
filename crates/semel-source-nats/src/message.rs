//! A message of a stream becomes a semel message.

use bytes::Bytes;
use semel_consumer::Message;
use semel_core::Header;

use crate::{
    ack_subject::{DeliveryInfo, position},
    headers::{self, MESSAGE_ID},
    jetstream::StoredMessage,
};

/// Where the ordering key of a message comes from. Messages with the same key are processed in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OrderingKey {
    /// The header `Semel-Ordering-Key` or, without it, the CloudEvents header `ce-partitionkey`. A message that has
    /// neither is processed without regard to others.
    #[default]
    Producer,
    /// The subject of the message. A stream whose messages all have one subject is then processed one by one.
    Subject,
    /// The header with this name. A message without it is processed without regard to others.
    Header(String),
    /// No message has one.
    None,
}

/// The headers with which a producer sets the ordering key. The first one that is there counts.
pub(crate) const ORDERING_KEY_HEADERS: [&str; 2] = ["Semel-Ordering-Key", "ce-partitionkey"];
/// The headers with which a producer names the subject for the outcome. The first one that is there counts.
pub(crate) const REPLY_TO_HEADERS: [&str; 2] = ["Semel-Reply-To", "Reply-To"];

impl OrderingKey {
    fn of(&self, message: &Message) -> Option<String> {
        let header =
            |name: &str| message.header(name).filter(|key| !key.is_empty()).map(str::to_owned);
        match self {
            Self::Producer => ORDERING_KEY_HEADERS.iter().find_map(|name| header(name)),
            Self::Subject => Some(message.topic.clone()),
            Self::Header(name) => header(name),
            Self::None => None,
        }
    }
}

/// A delivery that carries the message.
pub(crate) fn delivered(
    message: async_nats::Message,
    info: &DeliveryInfo,
    key: &OrderingKey,
) -> Message {
    let headers = headers::from_map(message.headers.as_ref());
    let with_broker = Message {
        deliveries: Some(info.deliveries),
        published_at: Some(info.published_at),
        position: info.position(),
        ..Message::default()
    };
    assembled(with_broker, message.subject.to_string(), message.payload, headers, key)
}

/// A message that the server does not deliver any more, as its stream stores it.
pub(crate) fn given_up(
    message: StoredMessage,
    stream: &str,
    deliveries: u32,
    key: &OrderingKey,
) -> Message {
    let with_broker = Message {
        deliveries: Some(deliveries),
        published_at: Some(message.published_at),
        position: position(stream, message.sequence),
        given_up: true,
        ..Message::default()
    };
    assembled(with_broker, message.subject, message.payload, message.headers, key)
}

fn assembled(
    broker: Message,
    topic: String,
    body: Bytes,
    headers: Vec<Header>,
    key: &OrderingKey,
) -> Message {
    let mut message = Message { topic, body, headers, ..broker };
    let text =
        |name: &str| message.header(name).filter(|value| !value.is_empty()).map(str::to_owned);
    let (message_id, reply_to) =
        (text(MESSAGE_ID), REPLY_TO_HEADERS.iter().find_map(|name| text(name)));
    message.ordering_key = key.of(&message);
    message.message_id = message_id;
    message.reply_to = reply_to;
    message
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn message(headers: &[(&str, &str)], key: &OrderingKey) -> Message {
        let headers = headers.iter().map(|(name, value)| Header {
            name: (*name).to_owned(),
            value: Bytes::copy_from_slice(value.as_bytes()),
        });
        let stored = StoredMessage {
            subject: "orders.7".to_owned(),
            sequence: 17,
            headers: headers.collect(),
            payload: Bytes::from_static(b"x"),
            published_at: UNIX_EPOCH,
        };
        given_up(stored, "ORDERS", 5, key)
    }

    #[test]
    fn the_ordering_key_comes_from_where_the_settings_say() {
        let both = [("ce-partitionkey", "p"), ("semel-ordering-key", "o")];
        let key = |headers, key| message(headers, &key).ordering_key;
        assert_eq!(key(&both, OrderingKey::Producer).as_deref(), Some("o"));
        assert_eq!(key(&both[..1], OrderingKey::Producer).as_deref(), Some("p"));
        assert_eq!(key(&[], OrderingKey::Producer), None);
        assert_eq!(key(&both, OrderingKey::Subject).as_deref(), Some("orders.7"));
        assert_eq!(
            key(&[("Tenant", "t")], OrderingKey::Header("tenant".into())).as_deref(),
            Some("t")
        );
        assert_eq!(key(&both, OrderingKey::None), None);
    }

    #[test]
    fn what_the_broker_knows_is_in_the_message() {
        let headers = [
            ("Nats-Msg-Id", "m-1"),
            ("Reply-To", "a"),
            ("Semel-Reply-To", "b"),
            ("X", "1"),
            ("X", "2"),
        ];
        let message = message(&headers, &OrderingKey::None);
        assert_eq!(message.message_id.as_deref(), Some("m-1"));
        assert_eq!(message.reply_to.as_deref(), Some("b"));
        assert_eq!((message.position.as_str(), message.deliveries), ("ORDERS/17", Some(5)));
        assert_eq!(message.headers.iter().filter(|header| header.name == "X").count(), 2);
        assert!(message.given_up);
    }
}
