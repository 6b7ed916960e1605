//! Reads CloudEvents 1.0, in binary mode (attributes in headers) and in structured mode (all in one JSON object).

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use base64ct::{Base64, Encoding};
use bytes::Bytes;
use semel_core::{Error, Result};
use serde_json::value::RawValue;

use crate::{
    event::{Event, EventAttributes, is_json},
    message::Message,
};

/// Header prefixes of binary mode: HTTP, NATS and Pub/Sub, then Kafka, then the two of AMQP.
const PREFIXES: [&str; 4] = ["ce-", "ce_", "cloudEvents:", "cloudEvents_"];
const STRUCTURED: &str = "application/cloudevents+json";
const ANY_STRUCTURED: &str = "application/cloudevents";

impl Event {
    /// Reads the attributes of a message. A message that does not claim to be a CloudEvent is an event, too, with few
    /// attributes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when the message claims to be a CloudEvent and is none.
    pub fn from_message(message: Arc<Message>) -> Result<Self> {
        let content_type = message.header("content-type").unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case(STRUCTURED) {
            return structured(message);
        }
        if essence
            .get(..ANY_STRUCTURED.len())
            .is_some_and(|it| it.eq_ignore_ascii_case(ANY_STRUCTURED))
        {
            let what = format!(
                "CloudEvent: {essence} is not supported; send {STRUCTURED}, or binary mode"
            );
            return Err(Error::invalid(what));
        }
        match message.headers.iter().any(|header| attribute(&header.name) == Some("specversion")) {
            true => binary(message),
            false => Ok(plain(message)),
        }
    }
}

/// The attribute that a header of binary mode has. Names of attributes have no upper case.
fn attribute(header: &str) -> Option<&str> {
    PREFIXES.iter().find_map(|prefix| {
        let start = header.get(..prefix.len())?;
        start.eq_ignore_ascii_case(prefix).then(|| &header[prefix.len()..])
    })
}

fn plain(message: Arc<Message>) -> Event {
    let first =
        |names: [&str; 2]| names.iter().find_map(|name| message.header(name)).map(str::to_owned);
    let attributes = EventAttributes {
        event_type: first(["event_type", "event-type"]),
        time: first(["event_time", "event-time"]),
        content_type: message.header("content-type").map(str::to_owned),
        ..EventAttributes::default()
    };
    Event { attributes: Arc::new(attributes), data: message.body.clone(), message }
}

fn binary(message: Arc<Message>) -> Result<Event> {
    let mut found = AttributeSet {
        content_type: message.header("content-type").map(str::to_owned),
        ..AttributeSet::default()
    };
    for header in &message.headers {
        let Some(name) = attribute(&header.name) else { continue };
        let value = std::str::from_utf8(&header.value)
            .map_err(|_| Error::invalid(format!("CloudEvent: attribute {name} is not UTF-8")))?;
        found.set(&name.to_ascii_lowercase(), percent_decoded(value))?;
    }
    let attributes = found.finish()?;
    Ok(Event { attributes: Arc::new(attributes), data: message.body.clone(), message })
}

fn structured(message: Arc<Message>) -> Result<Event> {
    let fields: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(&message.body)
        .map_err(|_| Error::invalid("CloudEvent: the body is not a JSON object"))?;
    let mut found = AttributeSet::default();
    let (mut data, mut base64) = (None, None);
    for (name, value) in &fields {
        match name.as_ref() {
            "data" => data = Some(*value),
            "data_base64" => base64 = Some(*value),
            "datacontenttype" => found.content_type = attribute_text(name, value)?,
            name => {
                if let Some(text) = attribute_text(name, value)? {
                    found.set(name, text)?;
                }
            }
        }
    }
    let attributes = found.finish()?;
    let data = match (data, base64) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid(
                "CloudEvent: has both data and data_base64; send one of them",
            ));
        }
        (None, None) => Bytes::new(),
        (None, Some(encoded)) => decode_base64(encoded)?,
        (Some(raw), None) => json_data(&message.body, raw, &attributes),
    };
    Ok(Event { attributes: Arc::new(attributes), data, message })
}

/// The text of an attribute: strings, booleans and numbers are allowed. JSON null means that it is not set.
fn attribute_text(name: &str, value: &RawValue) -> Result<Option<String>> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'"') => serde_json::from_str(text).map(Some).map_err(|_| {
            Error::invalid(format!("CloudEvent: attribute {name} is not a JSON string"))
        }),
        Some(b'{' | b'[') => {
            let what =
                format!("CloudEvent: attribute {name} is an object or array; only data may be one");
            Err(Error::invalid(what))
        }
        Some(b'n') | None => Ok(None),
        Some(_) => Ok(Some(text.to_owned())),
    }
}

/// The data of structured mode. JSON stays as it was sent; data of another type is a JSON string with its text.
fn json_data(body: &Bytes, raw: &RawValue, attributes: &EventAttributes) -> Bytes {
    let declared_json = attributes.content_type.as_deref().is_none_or(is_json);
    if !declared_json && let Ok(text) = serde_json::from_str::<String>(raw.get()) {
        return Bytes::from(text);
    }
    body.slice_ref(raw.get().as_bytes())
}

fn decode_base64(encoded: &RawValue) -> Result<Bytes> {
    let bad = || Error::invalid("CloudEvent: data_base64 is not a string in base64");
    let text: Cow<'_, str> = serde_json::from_str(encoded.get()).map_err(|_| bad())?;
    Base64::decode_vec(&text).map(Bytes::from).map_err(|_| bad())
}

/// Binary mode over HTTP and NATS encodes characters outside of printable ASCII, quotes and percent signs.
fn percent_decoded(value: &str) -> String {
    if !value.contains('%') {
        return value.to_owned();
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        let encoded = tail.get(..2).filter(|_| *first == b'%');
        let digits = encoded.and_then(|hex| std::str::from_utf8(hex).ok());
        let digits = digits.filter(|hex| hex.bytes().all(|it| it.is_ascii_hexdigit()));
        match digits.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| value.to_owned())
}

/// Attributes as they are found.
#[derive(Default)]
struct AttributeSet {
    spec_version: Option<String>,
    content_type: Option<String>,
    attributes: EventAttributes,
}

impl AttributeSet {
    fn set(&mut self, name: &str, value: String) -> Result<()> {
        let it = &mut self.attributes;
        let place = match name {
            "specversion" => &mut self.spec_version,
            "id" => &mut it.id,
            "source" => &mut it.source,
            "type" => &mut it.event_type,
            "subject" => &mut it.subject,
            "time" => &mut it.time,
            "dataschema" => &mut it.data_schema,
            // Binary mode has it in the header `content-type`.
            "datacontenttype" => &mut self.content_type,
            name => {
                it.extensions.push((name.to_owned(), value));
                return Ok(());
            }
        };
        match place.replace(value) {
            Some(_) if name != "datacontenttype" => {
                Err(Error::invalid(format!("CloudEvent: attribute {name} is there twice")))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn finish(self) -> Result<EventAttributes> {
        let Self { spec_version, content_type, attributes } = self;
        if spec_version.as_deref() != Some("1.0") {
            return Err(Error::invalid("CloudEvent: specversion is not 1.0"));
        }
        let it = &attributes;
        for (name, value) in [("id", &it.id), ("source", &it.source), ("type", &it.event_type)] {
            if value.as_deref().unwrap_or_default().is_empty() {
                return Err(Error::invalid(format!(
                    "CloudEvent: attribute {name} is missing or empty"
                )));
            }
        }
        // Source and id together are the id of the event, with a space between them.
        if it.source.as_deref().is_some_and(|source| source.contains(char::is_whitespace)) {
            return Err(Error::invalid(
                "CloudEvent: attribute source has white space, and is no URI reference",
            ));
        }
        Ok(EventAttributes { content_type, ..attributes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: Message) -> Result<Event> {
        Event::from_message(Arc::new(message))
    }

    fn structured_message(body: &'static str) -> Message {
        Message::new("t", body)
            .with_header("Content-Type", "application/cloudevents+json; charset=utf-8")
    }

    #[test]
    fn binary_mode_is_read_with_the_prefix_of_every_broker() {
        for prefix in PREFIXES {
            let message = Message::new("t", r#"{"n":1}"#)
                .with_header(format!("{prefix}specversion"), "1.0")
                .with_header(format!("{prefix}id"), "e-1")
                .with_header(format!("{prefix}source"), "/shop")
                .with_header(format!("{prefix}type"), "Order%20placed")
                .with_header(format!("{prefix}partitionkey"), "p")
                .with_header("content-type", "application/json");
            let event = event(message).unwrap();
            let it = &event.attributes;
            assert_eq!((it.id.as_deref(), it.source.as_deref()), (Some("e-1"), Some("/shop")));
            assert_eq!(event.event_type(), "Order placed");
            assert_eq!(event.ordering_key(), Some("p"));
            assert_eq!((it.is_json(), &event.data[..]), (true, &br#"{"n":1}"#[..]));
        }
    }

    #[test]
    fn structured_mode_keeps_the_bytes_of_json_data() {
        let body = r#"{"specversion":"1.0","id":"e-1","source":"s","type":"t","data":{"n": 1.0},"count":3}"#;
        let event = event(structured_message(body)).unwrap();
        assert_eq!(&event.data[..], br#"{"n": 1.0}"#);
        assert_eq!(event.attributes.extension("count"), Some("3"));
        assert!(event.attributes.is_json());
    }

    #[test]
    fn structured_mode_reads_text_and_base64() {
        let text = r#"{"specversion":"1.0","id":"1","source":"s","type":"t","datacontenttype":"text/plain","data":"a\"b"}"#;
        assert_eq!(&event(structured_message(text)).unwrap().data[..], b"a\"b");
        let base64 =
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"aGk="}"#;
        assert_eq!(&event(structured_message(base64)).unwrap().data[..], b"hi");
    }

    #[test]
    fn what_claims_to_be_a_cloud_event_and_is_none_is_refused() {
        for (body, words) in [
            ("[]", "not a JSON object"),
            (r#"{"specversion":"1.0","source":"s","type":"t"}"#, "attribute id"),
            (r#"{"specversion":"0.3","id":"1","source":"s","type":"t"}"#, "specversion"),
            (r#"{"specversion":"1.0","id":{},"source":"s","type":"t"}"#, "object or array"),
            (
                r#"{"specversion":"1.0","id":"1","source":"s","type":"t","data":1,"data_base64":""}"#,
                "both",
            ),
            (
                r#"{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"?"}"#,
                "base64",
            ),
        ] {
            let error = event(structured_message(body)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let batch = Message::new("t", "[]")
            .with_header("content-type", "application/cloudevents-batch+json");
        assert!(event(batch).unwrap_err().to_string().contains("not supported"));
        let twice = Message::new("t", "")
            .with_header("ce-specversion", "1.0")
            .with_header("ce-id", "a")
            .with_header("CE-ID", "b");
        assert!(event(twice).unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn any_other_message_is_an_event_with_what_its_headers_say() {
        let event =
            event(Message::new("t", "x").with_header("event_type", "UserRegistered")).unwrap();
        assert_eq!(event.event_type(), "UserRegistered");
        assert_eq!((event.attributes.id.as_deref(), event.attributes.is_json()), (None, false));
    }
}
