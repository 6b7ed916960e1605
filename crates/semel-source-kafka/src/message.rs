//! A record becomes a semel message.

use std::{
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, UNIX_EPOCH},
};

use bytes::Bytes;
use rdkafka::message::{BorrowedMessage, Headers, Message as _, Timestamp};
use semel_consumer::Message;
use semel_core::Header;

/// Where the ordering key of a message comes from. Messages with the same key are processed in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OrderingKey {
    /// The key of the record. A record without one is processed without regard to others.
    #[default]
    Key,
    /// The partition: its records are processed one by one.
    Partition,
    /// The header with this name. A message without it is processed without regard to others.
    Header(String),
    /// No message has one.
    None,
}

/// The headers in which a producer gives an id of its own. Kafka has no field for one.
pub(crate) const MESSAGE_ID_HEADERS: [&str; 4] =
    ["Message-Id", "message_id", "messageId", "Semel-Message-Id"];
/// The headers with which a producer names the topic for the outcome. The first one that is there counts.
pub(crate) const REPLY_TO_HEADERS: [&str; 3] = ["Semel-Reply-To", "Reply-To", "kafka_replyTopic"];

/// How the text of a key begins whose bytes are no text.
const HEX: &str = "hex:";

impl OrderingKey {
    pub(crate) fn of_option(value: &str) -> Option<Self> {
        match value {
            "key" => Some(Self::Key),
            "partition" => Some(Self::Partition),
            "none" => Some(Self::None),
            _ => {
                let name = value.strip_prefix("header:").filter(|name| !name.is_empty())?;
                Some(Self::Header(name.to_owned()))
            }
        }
    }

    fn of(&self, message: &Message, key: Option<&[u8]>, partition: &str) -> Option<String> {
        match self {
            Self::Key => key.map(key_text),
            Self::Partition => Some(partition.to_owned()),
            Self::Header(name) => {
                message.header(name).filter(|key| !key.is_empty()).map(str::to_owned)
            }
            Self::None => None,
        }
    }
}

/// The bytes of a record's key as text: as they are or, if they are no text, in hexadecimal digits. Two keys never have
/// the same text.
pub(crate) fn key_text(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.starts_with(HEX) => text.to_owned(),
        Ok(_) | Err(_) => key.iter().fold(HEX.to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    }
}

/// The message that a record carries. `partition` is `TOPIC/PARTITION`.
pub(crate) fn of_record(
    record: &BorrowedMessage<'_>,
    partition: &str,
    ordering_key: &OrderingKey,
) -> Message {
    let position = format!("{partition}/{}", record.offset());
    let mut message = Message {
        body: record.payload().map(Bytes::copy_from_slice).unwrap_or_default(),
        is_tombstone: record.payload().is_none(),
        headers: record.headers().map(|it| headers(it, &position)).unwrap_or_default(),
        topic: record.topic().to_owned(),
        record_key: record.key().map(Bytes::copy_from_slice),
        published_at: published_at(record.timestamp()),
        position,
        ..Message::default()
    };
    let text = |names: &[&str]| {
        let found = names.iter().find_map(|name| message.header(name));
        found.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    let (message_id, reply_to) = (text(&MESSAGE_ID_HEADERS), text(&REPLY_TO_HEADERS));
    message.ordering_key = ordering_key.of(&message, record.key(), partition);
    message.message_id = message_id;
    message.reply_to = reply_to;
    message
}

/// The headers of the record at `position`. The driver panics when it reads a header whose name is not UTF-8, and has no
/// other way to read one. Such a header is left out: the record has to become a message, or its partition would stand
/// still. An event's id is never in such a header, because semel reads headers by names that are text.
fn headers(headers: &impl Headers, position: &str) -> Vec<Header> {
    let header = |at| {
        let header = headers.try_get(at)?;
        let value = header.value.map(Bytes::copy_from_slice).unwrap_or_default();
        Some(Header { name: header.key.to_owned(), value })
    };
    let count = headers.count();
    let readable = |at| catch_unwind(AssertUnwindSafe(|| header(at))).ok().flatten();
    let all: Vec<_> = (0..count).filter_map(readable).collect();
    if all.len() < count {
        let left_out = count - all.len();
        tracing::warn!(position, left_out, "kafka: headers whose names are not UTF-8 are left out");
    }
    all
}

fn published_at(timestamp: Timestamp) -> Option<std::time::SystemTime> {
    let millis = timestamp.to_millis().filter(|millis| *millis >= 0)?;
    UNIX_EPOCH.checked_add(Duration::from_millis(millis.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers of which the driver cannot read the second one.
    struct UnreadableName;

    impl Headers for UnreadableName {
        fn count(&self) -> usize {
            3
        }

        fn try_get(&self, at: usize) -> Option<rdkafka::message::Header<'_, &[u8]>> {
            let key = std::str::from_utf8([b"a", b"\xff", b"c"].get(at)?.as_slice()).unwrap();
            Some(rdkafka::message::Header { key, value: Some(b"value") })
        }
    }

    #[test]
    fn a_header_whose_name_is_not_utf_8_stops_nothing() {
        let headers = headers(&UnreadableName, "orders/0/7");
        let names: Vec<_> = headers.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn two_keys_never_have_the_same_text() {
        let keys: [&[u8]; 6] = [b"order-7", b"", b"\xff\x00", b"hex:", b"hex:ff00", "ä".as_bytes()];
        let texts: std::collections::HashSet<_> = keys.into_iter().map(key_text).collect();
        assert_eq!(texts.len(), keys.len(), "{texts:?}");
        assert_eq!(key_text(b"order-7"), "order-7");
        assert_eq!(key_text(b"\xff\x00"), "hex:ff00");
    }

    #[test]
    fn options_name_every_ordering_key() {
        assert_eq!(OrderingKey::of_option("key"), Some(OrderingKey::Key));
        assert_eq!(OrderingKey::of_option("partition"), Some(OrderingKey::Partition));
        assert_eq!(OrderingKey::of_option("none"), Some(OrderingKey::None));
        let header = OrderingKey::of_option("header:Tenant");
        assert_eq!(header, Some(OrderingKey::Header("Tenant".to_owned())));
        assert_eq!(OrderingKey::of_option("header:"), None);
        assert_eq!(OrderingKey::of_option("subject"), None);
    }
}
