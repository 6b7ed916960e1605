//! Which event a message is: its id, its key and its fingerprint.

use std::borrow::Cow;

use semel_core::{Fingerprint, Key, KeySource, KeyStrategy, Result, Scope};
use serde_json::Value;

use crate::event::Event;

/// The header in which a redrive keeps the id of the original event. It comes before every other id: the broker may
/// need a new id of its own for the new copy.
pub const EVENT_ID_HEADER: &str = "Semel-Event-Id";

/// Headers that hold the id of an event.
const ID_HEADERS: [&str; 4] =
    [KeyStrategy::METADATA_NAME, "Idempotency-Key", "event_id", "event-id"];
const CORRELATION: [&str; 3] = ["correlation-id", "correlation_id", "correlationid"];
const USER: [&str; 3] = ["user-id", "user_id", "userid"];

impl Event {
    /// The id that every copy of this event has. These places are looked at in order: the header `Semel-Event-Id` of a
    /// redrive; CloudEvents `source` and `id`; the headers `IdempotencyKey`, `Idempotency-Key` and `event_id`; the id
    /// that the producer gave the broker; `/event_id` in a JSON body.
    ///
    /// A position in a topic is no id: a copy that is published again has another.
    #[must_use]
    pub fn event_id(&self) -> Option<Cow<'_, str>> {
        let header = |name: &str| self.message.header(name).filter(|id| !id.is_empty());
        if let Some(id) = header(EVENT_ID_HEADER) {
            return Some(Cow::Borrowed(id));
        }
        if let (Some(source), Some(id)) = (&self.attributes.source, &self.attributes.id) {
            // A source is a URI reference and has no space, so two pairs never give the same text.
            return Some(Cow::Owned(format!("{source} {id}")));
        }
        let of_header = ID_HEADERS.iter().find_map(|name| header(name));
        let of_broker = || self.message.message_id.as_deref().filter(|id| !id.is_empty());
        if let Some(id) = of_header.or_else(of_broker) {
            return Some(Cow::Borrowed(id));
        }
        self.id_in_body().map(Cow::Owned)
    }

    fn id_in_body(&self) -> Option<String> {
        if self.data.first() != Some(&b'{') {
            return None;
        }
        match serde_json::from_slice::<Value>(&self.data).ok()?.get("event_id")? {
            Value::String(id) if !id.is_empty() => Some(id.clone()),
            Value::Number(id) if !id.is_f64() => Some(id.to_string()),
            _ => None,
        }
    }

    /// The key of this event in `scope`, by `strategy`. The strategy's message id is [`Event::event_id`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when the event lacks what the strategy needs, or the id
    /// breaks the rules of [`Scope::key`].
    pub fn key(&self, scope: &Scope, strategy: &KeyStrategy) -> Result<Key> {
        scope.key(self.id_by(strategy)?)
    }

    /// The id of this event by `strategy`.
    pub(crate) fn id_by(&self, strategy: &KeyStrategy) -> Result<String> {
        let event_id = self.event_id();
        let find = |names: [&str; 3]| {
            let of_header = names.iter().find_map(|name| self.message.header(name));
            of_header.or_else(|| self.attributes.extension(names[2]))
        };
        let text = |value| std::str::from_utf8(value).ok();
        let headers = self.message.headers.iter();
        let headers = headers.filter_map(|it| Some((it.name.as_str(), text(&it.value)?)));
        let extensions = self.attributes.extensions.iter();
        let metadata: Vec<_> = headers
            .chain(extensions.map(|(name, value)| (name.as_str(), value.as_str())))
            .collect();
        let source = KeySource {
            message_id: event_id.as_deref(),
            correlation_id: find(CORRELATION),
            user_id: find(USER),
            metadata: &metadata,
            body: &self.data,
        };
        strategy.render(&source)
    }

    /// The fingerprint of what the event says: its type, its content type and its data. A tombstone says another thing
    /// than an empty payload.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let content_type = self.attributes.content_type.as_deref().unwrap_or_default();
        let parts = [self.event_type().as_bytes(), content_type.as_bytes(), &self.data];
        let parts = if self.message.is_tombstone { &parts[..2] } else { &parts[..] };
        Fingerprint::of_parts(parts)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::Message;

    fn event(message: Message) -> Event {
        Event::from_message(Arc::new(message)).unwrap()
    }

    #[test]
    fn an_id_is_looked_for_in_the_published_order() {
        let mut message = Message::new("t", r#"{"event_id":"in the body"}"#);
        let id = |message: &Message| event(message.clone()).event_id().map(Cow::into_owned);
        assert_eq!(id(&message).as_deref(), Some("in the body"));
        message = message.with_id("of the broker");
        assert_eq!(id(&message).as_deref(), Some("of the broker"));
        message = message.with_header("event_id", "in a header");
        assert_eq!(id(&message).as_deref(), Some("in a header"));
        message = message
            .with_header("ce-specversion", "1.0")
            .with_header("ce-id", "1")
            .with_header("ce-source", "/shop")
            .with_header("ce-type", "t");
        assert_eq!(id(&message).as_deref(), Some("/shop 1"));
        message = message.with_header("semel-event-id", "redriven");
        assert_eq!(id(&message).as_deref(), Some("redriven"));
    }

    #[test]
    fn a_message_without_an_id_has_no_key() {
        let scope = Scope::new("n", semel_core::Principal::Anonymous, "c");
        let key = event(Message::new("t", "{}")).key(&scope, &KeyStrategy::message_id());
        assert!(key.unwrap_err().to_string().contains("no message id"));
    }

    #[test]
    fn the_fingerprint_covers_type_and_data() {
        let one = event(Message::new("t", "x").with_header("event_type", "A"));
        let other_type = event(Message::new("t", "x").with_header("event_type", "B"));
        let other_data = event(Message::new("t", "y").with_header("event_type", "A"));
        assert_eq!(one.fingerprint(), one.clone().fingerprint());
        assert_ne!(one.fingerprint(), other_type.fingerprint());
        assert_ne!(one.fingerprint(), other_data.fingerprint());
        let (tombstone, empty) = (event(Message::tombstone("t")), event(Message::new("t", "")));
        assert_ne!(tombstone.fingerprint(), empty.fingerprint());
    }
}
