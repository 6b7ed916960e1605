//! A dead letter as a message with descriptive headers, for brokers: payload and headers of the original stay as they
//! are.
//!
//! Values are printable ASCII: everything else, and `%`, is percent-encoded. A line break in an error's text can then
//! not begin another header.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use semel_core::{Error, Header, KeyHash, Result};

use super::{
    DeadLetter,
    format::{corrupt, key, reason, time, tombstone},
    rfc3339,
};
use crate::message::Message;

/// How the names of all descriptive headers begin.
const PREFIX: &str = "Semel-Dead-Letter-";
/// The only value that may be no text.
const RECORD_KEY: &str = "Record-Key";
/// The longest text of an error in a header. It is cut before it is encoded.
const MAX_ERROR: usize = 512;

impl DeadLetter {
    /// What describes the letter, as headers: `Semel-Dead-Letter-Id`, `-Reason`, `-Class`, `-Error`, `-Attempts`,
    /// `-First-At`, `-Last-At`, `-Consumer`, `-Source`, `-Key`, `-Event-Id`, and what a broker does not keep of the
    /// original message: `-Topic`, `-Position`, `-Message-Id`, `-Record-Key`, `-Ordering-Key`, `-Reply-To`,
    /// `-Deliveries`, `-Published-At`, and `-Tombstone: true` if it has no payload. What is not known has no header.
    ///
    /// All values are printable ASCII; other characters are percent-encoded. The error is cut at 512 bytes.
    #[must_use]
    pub fn headers(&self) -> Vec<Header> {
        let message = &self.message;
        let error = &self.error[..self.error.floor_char_boundary(MAX_ERROR)];
        let always = [
            ("Id", &*self.id),
            ("Reason", self.reason.as_str()),
            ("Class", &self.class),
            ("Error", error),
            ("Attempts", &self.attempts.to_string()),
            ("First-At", &rfc3339::format(self.first_at)),
            ("Last-At", &rfc3339::format(self.last_at)),
            ("Consumer", &self.consumer),
            ("Source", &self.source),
            ("Topic", &message.topic),
            ("Position", &message.position),
        ]
        .map(|(name, value)| (name, Some(value.to_owned())));
        let if_known = [
            ("Key", self.key.as_ref().map(KeyHash::to_hex)),
            ("Event-Id", self.event_id.clone()),
            ("Message-Id", message.message_id.clone()),
            ("Ordering-Key", message.ordering_key.clone()),
            ("Reply-To", message.reply_to.clone()),
            ("Deliveries", message.deliveries.map(|count| count.to_string())),
            ("Published-At", message.published_at.map(rfc3339::format)),
            ("Tombstone", message.is_tombstone.then(|| "true".to_owned())),
        ];
        let header = |(name, value): (&str, Option<String>)| {
            Some(descriptive_header(name, value?.as_bytes()))
        };
        let described = always.into_iter().chain(if_known).filter_map(header);
        let record_key = message.record_key.as_ref().map(|key| descriptive_header(RECORD_KEY, key));
        described.chain(record_key).collect()
    }

    /// A message that carries this letter: payload and headers of the original, and [`DeadLetter::headers`]. It has no
    /// topic and no id; the sink sets them. The letter of a tombstone has an empty payload, so that no broker takes the
    /// letter itself for a deletion. [`DeadLetter::from_message`] reads it.
    #[must_use]
    pub fn to_message(&self) -> Message {
        let mut headers = others(&self.message);
        headers.extend(self.headers());
        Message { body: self.message.body.clone(), headers, ..Message::default() }
    }

    /// Reads a letter from a message that [`DeadLetter::to_message`] made. Headers that the broker has added must be
    /// removed before, or they count as headers of the original.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](semel_core::ErrorKind::Corrupt) when the message carries no letter,
    /// [`ErrorKind::Unsupported`](semel_core::ErrorKind::Unsupported) when a newer semel wrote it.
    pub fn from_message(message: &Message) -> Result<Self> {
        let mut found = LetterHeaders::of(message)?;
        let original = Message {
            body: message.body.clone(),
            is_tombstone: tombstone("Tombstone", found.flag("Tombstone")?, &message.body)?,
            headers: others(message),
            topic: found.text("Topic"),
            message_id: found.take("Message-Id"),
            record_key: found.record_key.take(),
            ordering_key: found.take("Ordering-Key"),
            deliveries: found.number("Deliveries")?,
            published_at: found.parsed("Published-At", time)?,
            position: found.text("Position"),
            reply_to: found.take("Reply-To"),
            given_up: false,
        };
        let last_at = found.needed("Last-At")?;
        let last_at = time("Last-At", &last_at)?;
        Ok(Self {
            id: found.needed("Id")?,
            key: found.parsed("Key", key)?,
            event_id: found.take("Event-Id"),
            reason: reason(&found.needed("Reason")?)?,
            class: found.text("Class"),
            error: found.text("Error"),
            attempts: found.number("Attempts")?.unwrap_or_default(),
            first_at: found.parsed("First-At", time)?.unwrap_or(last_at),
            last_at,
            consumer: found.text("Consumer"),
            source: found.text("Source"),
            message: Arc::new(original),
        })
    }
}

/// The descriptive headers of a message, decoded.
struct LetterHeaders {
    texts: HashMap<String, String>,
    record_key: Option<Bytes>,
}

impl LetterHeaders {
    /// The last header of a name counts: a sink adds its own after those that the original may have had.
    fn of(message: &Message) -> Result<Self> {
        let mut found = Self { texts: HashMap::new(), record_key: None };
        for header in &message.headers {
            let Some(name) = descriptive(header) else { continue };
            let not_encoded =
                || corrupt(&format!("the header {PREFIX}{name} is not percent-encoded UTF-8"));
            let value = decoded(&header.value).ok_or_else(not_encoded)?;
            if name.eq_ignore_ascii_case(RECORD_KEY) {
                found.record_key = Some(value.into());
            } else {
                let text = String::from_utf8(value).map_err(|_| not_encoded())?;
                found.texts.insert(name.to_ascii_lowercase(), text);
            }
        }
        Ok(found)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.texts.remove(&name.to_ascii_lowercase())
    }

    fn text(&mut self, name: &str) -> String {
        self.take(name).unwrap_or_default()
    }

    fn needed(&mut self, name: &str) -> Result<String> {
        let value = self.take(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| {
            corrupt(&format!("the message carries none: it lacks the header {PREFIX}{name}"))
        })
    }

    fn parsed<T>(&mut self, name: &str, parse: fn(&str, &str) -> Result<T>) -> Result<Option<T>> {
        self.take(name).map(|value| parse(name, &value)).transpose()
    }

    fn flag(&mut self, name: &str) -> Result<bool> {
        match self.take(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => {
                Err(corrupt(&format!("the header {PREFIX}{name} is neither true nor false")))
            }
        }
    }

    fn number(&mut self, name: &str) -> Result<Option<u32>> {
        let not_a_number =
            |_| -> Error { corrupt(&format!("the header {PREFIX}{name} is no number")) };
        self.take(name).map(|value| value.parse().map_err(not_a_number)).transpose()
    }
}

fn descriptive_header(name: &str, value: &[u8]) -> Header {
    Header { name: format!("{PREFIX}{name}"), value: Bytes::from(encoded(value)) }
}

/// The name of a descriptive header after the prefix.
fn descriptive(header: &Header) -> Option<&str> {
    let start = header.name.get(..PREFIX.len())?;
    start.eq_ignore_ascii_case(PREFIX).then(|| &header.name[PREFIX.len()..])
}

/// The headers that do not describe a letter.
fn others(message: &Message) -> Vec<Header> {
    message.headers.iter().filter(|header| descriptive(header).is_none()).cloned().collect()
}

/// Spaces at the ends are encoded, too: many readers of headers drop them.
fn encoded(bytes: &[u8]) -> String {
    let last = bytes.len().saturating_sub(1);
    let mut encoded = String::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().copied().enumerate() {
        match byte {
            b' ' if at > 0 && at < last => encoded.push(' '),
            b'!'..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                let digit = |half: u8| char::from(DIGITS[usize::from(half & 15)]);
                encoded.extend(['%', digit(byte >> 4), digit(byte)]);
            }
        }
    }
    encoded
}

fn decoded(value: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                bytes.push(digit(high)? << 4 | digit(low)?);
                tail
            }
            (b'%', _) => return None,
            _ => {
                bytes.push(*first);
                tail
            }
        };
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use semel_core::ErrorKind;

    use super::{
        super::format::tests::{content, letter, tombstone_letter},
        *,
    };

    #[test]
    fn a_letter_is_read_back_from_its_message() {
        let (before, message) = (letter(), letter().to_message());
        assert_eq!(message.body, before.message.body);
        assert_eq!(
            message.headers[..3],
            before.message.headers[..],
            "the original headers come first"
        );
        let after = DeadLetter::from_message(&message).unwrap();
        assert_eq!(content(&after), content(&before));
    }

    #[test]
    fn what_is_not_known_is_not_read_back_as_empty() {
        let small = DeadLetter {
            key: None,
            event_id: None,
            class: String::new(),
            message: Arc::new(Message::new("orders", "x")),
            ..letter()
        };
        let after = DeadLetter::from_message(&small.to_message()).unwrap();
        assert_eq!(content(&after), content(&small));
    }

    #[test]
    fn a_tombstone_is_read_back_from_a_message_that_is_none() {
        let (before, message) = (tombstone_letter(), tombstone_letter().to_message());
        assert!(!message.is_tombstone, "a compacted topic would delete the letter");
        assert_eq!(message.header("Semel-Dead-Letter-Tombstone"), Some("true"));
        let after = DeadLetter::from_message(&message).unwrap();
        assert!(after.message.is_tombstone);
        assert_eq!(content(&after), content(&before));
        assert_eq!(letter().to_message().header("Semel-Dead-Letter-Tombstone"), None);
    }

    #[test]
    fn no_value_can_begin_another_header() {
        let hostile = "a\r\nNats-Rollup: all\r\n\r\nbody \u{7f}\u{85}\0 ";
        let message = Message { position: hostile.to_owned(), ..Message::new(hostile, "") };
        let letter = DeadLetter {
            error: hostile.to_owned(),
            class: hostile.to_owned(),
            event_id: Some(hostile.to_owned()),
            message: Arc::new(message.with_id(hostile).with_ordering_key(hostile)),
            ..letter()
        };
        for Header { name, value } in letter.headers() {
            assert!(value.iter().all(|byte| (b' '..=b'~').contains(byte)), "{name}");
            assert!(!value.starts_with(b" ") && !value.ends_with(b" "), "{name}");
        }
        assert_eq!(
            content(&DeadLetter::from_message(&letter.to_message()).unwrap()),
            content(&letter)
        );
    }

    #[test]
    fn a_long_error_is_cut_between_two_characters() {
        let long = DeadLetter { error: "aä".repeat(1000), ..letter() };
        let after = DeadLetter::from_message(&long.to_message()).unwrap();
        assert!(
            after.error.len() <= MAX_ERROR && after.error.len() > MAX_ERROR - 3,
            "{}",
            after.error.len()
        );
        assert!(long.error.starts_with(&after.error));
    }

    #[test]
    fn headers_of_an_earlier_letter_do_not_describe_this_one() {
        let forged = letter().message.as_ref().clone();
        let forged = forged
            .with_header("semel-dead-letter-id", "forged")
            .with_header("Semel-Dead-Letter-Key", "zz");
        let letter = DeadLetter { key: None, message: Arc::new(forged), ..letter() };
        let mut message = letter.to_message();
        let after = DeadLetter::from_message(&message).unwrap();
        assert_eq!((&after.id, after.key), (&letter.id, None));
        // A sink that keeps all headers of the original and adds those of the letter behind them.
        message
            .headers
            .insert(0, Header { name: "Semel-Dead-Letter-Id".to_owned(), value: "forged".into() });
        assert_eq!(DeadLetter::from_message(&message).unwrap().id, letter.id);
    }

    #[test]
    fn a_message_that_carries_no_letter_is_refused() {
        let refusal = |message: &Message| DeadLetter::from_message(message).unwrap_err();
        let plain = refusal(&Message::new("t", "canary"));
        assert_eq!(plain.kind(), ErrorKind::Corrupt);
        assert!(plain.to_string().contains("Semel-Dead-Letter-"), "{plain}");
        for (name, value) in [
            ("Id", ""),
            ("Last-At", "canary"),
            ("Key", "canary"),
            ("Attempts", "canary"),
            ("Tombstone", "canary"),
            ("Tombstone", "true"),
            ("Class", "%4"),
            ("Class", "%zz"),
            ("Class", "%ff"),
        ] {
            let message = letter().to_message().with_header(format!("{PREFIX}{name}"), value);
            let error = refusal(&message);
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
