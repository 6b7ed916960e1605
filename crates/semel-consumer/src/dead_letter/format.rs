//! A dead letter as one JSON object.
//!
//! The payload is in base64, so that its bytes are kept as they are. Readers ignore fields that they do not know; a
//! change that they must not ignore raises the version.

use std::{borrow::Cow, sync::Arc, time::SystemTime};

use base64ct::{Base64, Encoding};
use semel_core::{Error, ErrorKind, Header, KeyHash, Result};
use serde::{Deserialize, Serialize};

use super::{DeadLetter, DeadLetterReason, rfc3339};
use crate::message::Message;

/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct LetterJson<'a> {
    version: u32,
    id: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_id: Option<Cow<'a, str>>,
    reason: Cow<'a, str>,
    class: Cow<'a, str>,
    error: Cow<'a, str>,
    attempts: u32,
    first_at: String,
    last_at: String,
    consumer: Cow<'a, str>,
    source: Cow<'a, str>,
    message: MessageJson<'a>,
}

#[derive(Serialize, Deserialize)]
struct MessageJson<'a> {
    topic: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ordering_key: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record_key_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deliveries: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    published_at: Option<String>,
    position: Cow<'a, str>,
    headers: Vec<(Cow<'a, str>, HeaderValue<'a>)>,
    body_base64: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    tombstone: bool,
}

/// The value of a header: its text or, if it is not UTF-8, its bytes.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum HeaderValue<'a> {
    Text(Cow<'a, str>),
    Bytes { base64: String },
}

/// Read first, because the other fields of a newer version may be unreadable.
#[derive(Deserialize)]
struct VersionJson {
    version: u32,
}

impl DeadLetter {
    /// The letter as one JSON object, which [`DeadLetter::from_json`] reads.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let json = LetterJson {
            version: VERSION,
            id: Cow::Borrowed(&self.id),
            key: self.key.as_ref().map(KeyHash::to_hex),
            event_id: self.event_id.as_deref().map(Cow::Borrowed),
            reason: Cow::Borrowed(self.reason.as_str()),
            class: Cow::Borrowed(&self.class),
            error: Cow::Borrowed(&self.error),
            attempts: self.attempts,
            first_at: rfc3339::format(self.first_at),
            last_at: rfc3339::format(self.last_at),
            consumer: Cow::Borrowed(&self.consumer),
            source: Cow::Borrowed(&self.source),
            message: MessageJson::of(&self.message),
        };
        serde_json::to_vec(&json).expect("texts and numbers have a JSON form")
    }

    /// Reads a letter that [`DeadLetter::to_json`] wrote.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] when it is no such letter, [`ErrorKind::Unsupported`] when a newer semel wrote it.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        let VersionJson { version } =
            serde_json::from_slice(json).map_err(|error| not_json(&error))?;
        if version > VERSION {
            return Err(newer(&format!("version {version}")));
        }
        let json: LetterJson<'_> =
            serde_json::from_slice(json).map_err(|error| not_json(&error))?;
        if json.id.is_empty() {
            return Err(corrupt("its id is empty"));
        }
        Ok(Self {
            id: json.id.into_owned(),
            key: json.key.map(|hex| key("key", &hex)).transpose()?,
            event_id: json.event_id.map(Cow::into_owned),
            reason: reason(&json.reason)?,
            class: json.class.into_owned(),
            error: json.error.into_owned(),
            attempts: json.attempts,
            first_at: time("first_at", &json.first_at)?,
            last_at: time("last_at", &json.last_at)?,
            consumer: json.consumer.into_owned(),
            source: json.source.into_owned(),
            message: Arc::new(json.message.into_message()?),
        })
    }
}

impl<'a> MessageJson<'a> {
    fn of(message: &'a Message) -> Self {
        let text = |text: &'a Option<String>| text.as_deref().map(Cow::Borrowed);
        let header = |header: &'a Header| {
            let value = match std::str::from_utf8(&header.value) {
                Ok(text) => HeaderValue::Text(Cow::Borrowed(text)),
                Err(_) => HeaderValue::Bytes { base64: Base64::encode_string(&header.value) },
            };
            (Cow::Borrowed(&*header.name), value)
        };
        Self {
            topic: Cow::Borrowed(&message.topic),
            message_id: text(&message.message_id),
            ordering_key: text(&message.ordering_key),
            record_key_base64: message.record_key.as_deref().map(Base64::encode_string),
            reply_to: text(&message.reply_to),
            deliveries: message.deliveries,
            published_at: message.published_at.map(rfc3339::format),
            position: Cow::Borrowed(&message.position),
            headers: message.headers.iter().map(header).collect(),
            body_base64: Base64::encode_string(&message.body),
            tombstone: message.is_tombstone,
        }
    }

    fn into_message(self) -> Result<Message> {
        let header = |(name, value): (Cow<'_, str>, HeaderValue<'_>)| {
            let value = match value {
                HeaderValue::Text(text) => text.into_owned().into_bytes(),
                HeaderValue::Bytes { base64 } => bytes("the value of a header", &base64)?,
            };
            Ok(Header { name: name.into_owned(), value: value.into() })
        };
        let body = bytes("body_base64", &self.body_base64)?;
        let record_key = self.record_key_base64.map(|text| bytes("record_key_base64", &text));
        Ok(Message {
            is_tombstone: tombstone("tombstone", self.tombstone, &body)?,
            body: body.into(),
            headers: self.headers.into_iter().map(header).collect::<Result<_>>()?,
            topic: self.topic.into_owned(),
            message_id: self.message_id.map(Cow::into_owned),
            record_key: record_key.transpose()?.map(Into::into),
            ordering_key: self.ordering_key.map(Cow::into_owned),
            deliveries: self.deliveries,
            published_at: self.published_at.map(|text| time("published_at", &text)).transpose()?,
            position: self.position.into_owned(),
            reply_to: self.reply_to.map(Cow::into_owned),
            given_up: false,
        })
    }
}

fn bytes(field: &str, base64: &str) -> Result<Vec<u8>> {
    Base64::decode_vec(base64).map_err(|_| corrupt(&format!("{field} is not base64")))
}

/// A redrive that took a letter with a payload for a tombstone would lose the payload.
pub(super) fn tombstone(field: &str, is_tombstone: bool, body: &[u8]) -> Result<bool> {
    match is_tombstone && !body.is_empty() {
        true => Err(corrupt(&format!("{field} says that there is no payload, and there is one"))),
        false => Ok(is_tombstone),
    }
}

pub(super) fn time(field: &str, text: &str) -> Result<SystemTime> {
    rfc3339::parse(text).ok_or_else(|| corrupt(&format!("{field} is no time in RFC 3339 and UTC")))
}

/// Reads the 64 hex digits of a key.
pub(super) fn key(field: &str, hex: &str) -> Result<KeyHash> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    let bytes: Option<Vec<u8>> = bytes.collect();
    let key = bytes.filter(|_| rest.is_empty()).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    key.map(KeyHash::from_bytes).ok_or_else(|| corrupt(&format!("{field} is not 64 hex digits")))
}

/// A reason that this build does not know is one that a newer build has added.
pub(super) fn reason(word: &str) -> Result<DeadLetterReason> {
    DeadLetterReason::from_word(word).ok_or_else(|| newer("an unknown reason"))
}

pub(super) fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("dead letter: {what}"))
}

fn newer(what: &str) -> Error {
    let what =
        format!("dead letter: it has {what}, which a newer semel has written; use that version");
    Error::new(ErrorKind::Unsupported, what)
}

/// The decoder's own message may quote the payload.
fn not_json(error: &serde_json::Error) -> Error {
    let (line, column) = (error.line(), error.column());
    corrupt(&format!("it is not the JSON of a letter (line {line}, column {column})"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// A letter in which every field has a value that is hard to keep.
    pub(in crate::dead_letter) fn letter() -> DeadLetter {
        let message = Message {
            deliveries: Some(3),
            published_at: Some(rfc3339::from_micros(1_700_000_000_123_456)),
            position: "ORDERS/17".to_owned(),
            reply_to: Some("inbox.7".to_owned()),
            ..Message::new("orders.ä", &b"\x00\xff{\"canary\""[..])
                .with_header("traceparent", "00-ab")
                .with_header("binary", &b"\xfe\r\n"[..])
                .with_header("traceparent", "")
                .with_id("m-1")
                .with_record_key(&b"\xfe%customer"[..])
                .with_ordering_key("customer \"7\"")
        };
        DeadLetter {
            id: "6f2c0b1e-7d0a-8a5e-9f3a-0c1d2e3f4a5b".to_owned(),
            key: Some(KeyHash::from_bytes(std::array::from_fn(|at| {
                u8::try_from(at * 8).unwrap_or(255)
            }))),
            event_id: Some("/shop ordér-1".to_owned()),
            reason: DeadLetterReason::AttemptsExhausted,
            class: "card_declined".to_owned(),
            error: "no\nmoney %41".to_owned(),
            attempts: 5,
            first_at: rfc3339::from_micros(1_700_000_000_123_456),
            last_at: rfc3339::from_micros(1_700_000_009_000_001),
            consumer: "billing".to_owned(),
            source: "nats ORDERS/billing".to_owned(),
            message: Arc::new(message),
        }
    }

    /// A letter whose message has no payload.
    pub(in crate::dead_letter) fn tombstone_letter() -> DeadLetter {
        let message = Message::tombstone("customers").with_ordering_key("customer-7");
        DeadLetter { message: Arc::new(message), ..letter() }
    }

    /// All that a sink has to keep, as a text.
    pub(in crate::dead_letter) fn content(letter: &DeadLetter) -> String {
        String::from_utf8(letter.to_json()).unwrap()
    }

    #[test]
    fn a_letter_is_read_back_without_a_change() {
        let (before, json) = (letter(), letter().to_json());
        let after = DeadLetter::from_json(&json).unwrap();
        assert_eq!(after.message.body, before.message.body);
        assert_eq!(after.message.headers, before.message.headers);
        assert_eq!(after.key, before.key);
        assert_eq!(after.last_at, before.last_at);
        assert_eq!(after.message.published_at, before.message.published_at);
        assert!(after.is_copy_of(&before));
        assert_eq!(after.to_json(), json);
    }

    #[test]
    fn a_letter_with_nothing_but_its_id_is_read_back() {
        let time = rfc3339::from_micros(0);
        let small = DeadLetter {
            key: None,
            event_id: None,
            class: String::new(),
            first_at: time,
            last_at: time,
            message: Arc::new(Message::new("", "")),
            ..letter()
        };
        let after = DeadLetter::from_json(&small.to_json()).unwrap();
        assert_eq!(content(&after), content(&small));
        assert!(!content(&small).contains("message_id"), "{}", content(&small));
    }

    #[test]
    fn a_tombstone_is_no_empty_payload() {
        let tombstone = tombstone_letter();
        let after = DeadLetter::from_json(&tombstone.to_json()).unwrap();
        assert!(after.message.is_tombstone && after.message.body.is_empty());
        let empty = DeadLetter { message: Arc::new(Message::new("customers", "")), ..letter() };
        assert!(!DeadLetter::from_json(&empty.to_json()).unwrap().message.is_tombstone);
        assert!(!content(&empty).contains("tombstone"), "{}", content(&empty));
        let both = content(&tombstone).replace("body_base64\":\"", "body_base64\":\"aGk=");
        assert_eq!(DeadLetter::from_json(both.as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn the_fields_of_version_1_keep_their_names() {
        let message =
            Message::new("orders", "hi").with_header("a", "b").with_header("c", &b"\xff"[..]);
        let letter = DeadLetter { message: Arc::new(message), ..letter() };
        let expected = r#"{"version":1,"id":"6f2c0b1e-7d0a-8a5e-9f3a-0c1d2e3f4a5b",
            "key":"0008101820283038404850586068707880889098a0a8b0b8c0c8d0d8e0e8f0f8",
            "event_id":"/shop ordér-1","reason":"attempts_exhausted","class":"card_declined",
            "error":"no\nmoney %41","attempts":5,"first_at":"2023-11-14T22:13:20.123456Z",
            "last_at":"2023-11-14T22:13:29.000001Z","consumer":"billing","source":"nats ORDERS/billing",
            "message":{"topic":"orders","position":"","headers":[["a","b"],["c",{"base64":"/w=="}]],
            "body_base64":"aGk="}}"#;
        let value = |json: &[u8]| serde_json::from_slice::<serde_json::Value>(json).unwrap();
        assert_eq!(value(&letter.to_json()), value(expected.as_bytes()));
        DeadLetter::from_json(expected.as_bytes()).unwrap();
    }

    #[test]
    fn a_letter_of_a_newer_version_is_not_reported_as_damaged() {
        let newer = DeadLetter::from_json(br#"{"version":2,"id":7}"#).unwrap_err();
        assert_eq!(newer.kind(), ErrorKind::Unsupported, "{newer}");
        let reason = content(&letter()).replace("attempts_exhausted", "weather");
        assert_eq!(
            DeadLetter::from_json(reason.as_bytes()).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        let good = content(&letter());
        for (from, to) in [
            ("version", "revision"),
            ("6f2c0b1e-7d0a-8a5e-9f3a-0c1d2e3f4a5b", ""),
            ("00081018", "0008101"),
            ("00081018", "000810zz"),
            ("2023-11-14T22:13:29", "yesterday"),
            ("\"body_base64\":\"", "\"body_base64\":\"?"),
            ("\"attempts\":5", "\"attempts\":\"canary\""),
        ] {
            let error = DeadLetter::from_json(good.replace(from, to).as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{from}: {error}");
            assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        }
    }

    #[test]
    fn a_later_letter_of_the_same_event_is_no_copy() {
        let one = letter();
        let nanosecond_later =
            DeadLetter { last_at: one.last_at + Duration::from_nanos(1), ..one.clone() };
        assert!(one.is_copy_of(&nanosecond_later), "sinks keep microseconds");
        let later = DeadLetter { last_at: one.last_at + Duration::from_micros(1), ..one.clone() };
        assert!(!one.is_copy_of(&later));
        assert!(!one.is_copy_of(&DeadLetter { id: "other".to_owned(), ..one.clone() }));
    }
}
