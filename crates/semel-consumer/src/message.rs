//! A message as a broker delivered it.

use std::{fmt, time::SystemTime};

use bytes::Bytes;
use semel_core::Header;

use crate::dead_letter::REDRIVEN_FROM_HEADER;

/// A message as a broker delivered it: bytes and what the broker says about them.
#[derive(Clone, Default)]
pub struct Message {
    /// The payload, untouched.
    pub body: Bytes,
    /// True if the message has no payload at all, which a log-compacted topic takes as the deletion of its key. The
    /// body is empty then; an empty payload is none of this.
    pub is_tombstone: bool,
    /// Headers or attributes, in the broker's order.
    pub headers: Vec<Header>,
    /// The subject, topic or queue that the producer published to.
    pub topic: String,
    /// The id that the producer gave the broker, such as `Nats-Msg-Id`. Never an id that the broker made up: that
    /// would differ between two copies of one event.
    pub message_id: Option<String>,
    /// The key of the record, in a log such as Kafka: it decides the partition, and what a compacted topic keeps. The
    /// ordering key may come from elsewhere.
    pub record_key: Option<Bytes>,
    /// Messages with the same key are processed in order.
    pub ordering_key: Option<String>,
    /// How often the broker has delivered this message, this time included. `None` if the broker does not count.
    pub deliveries: Option<u32>,
    /// When the broker accepted the message.
    pub published_at: Option<SystemTime>,
    /// Where the message is in the source, for operators: `ORDERS/17`. The same for every delivery of this message.
    pub position: String,
    /// Where the producer wants the recorded outcome to be sent.
    pub reply_to: Option<String>,
    /// True if the broker has given up on the message because it reached the broker's own limit of deliveries. It
    /// becomes a dead letter, unless its outcome is recorded.
    pub given_up: bool,
}

impl Message {
    /// A message with this payload and nothing else.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), body: body.into(), ..Self::default() }
    }

    /// A message without a payload.
    pub fn tombstone(topic: impl Into<String>) -> Self {
        Self { topic: topic.into(), is_tombstone: true, ..Self::default() }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push(Header { name: name.into(), value: value.into() });
        self
    }

    /// Sets the id that the producer gave the broker.
    #[must_use]
    pub fn with_id(self, id: impl Into<String>) -> Self {
        Self { message_id: Some(id.into()), ..self }
    }

    /// Sets the key of the record.
    #[must_use]
    pub fn with_record_key(self, key: impl Into<Bytes>) -> Self {
        Self { record_key: Some(key.into()), ..self }
    }

    /// Sets the key within which order is kept.
    #[must_use]
    pub fn with_ordering_key(self, key: impl Into<String>) -> Self {
        Self { ordering_key: Some(key.into()), ..self }
    }

    /// The value of the first header with this name, if it is text. Names are compared without case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(&header.value).ok()
    }

    /// True if the broker has delivered this message before.
    #[must_use]
    pub fn is_redelivery(&self) -> bool {
        self.deliveries.is_some_and(|count| count > 1)
    }

    /// True if an operator has published this message again, from a dead letter.
    #[must_use]
    pub fn is_redriven(&self) -> bool {
        self.header(REDRIVEN_FROM_HEADER).is_some()
    }
}

/// Without payload and headers, which stay out of logs.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("position", &self.position)
            .field("deliveries", &self.deliveries)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}
