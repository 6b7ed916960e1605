//! The copy of a message that a redrive publishes.

use std::borrow::Cow;

use semel_core::Header;

use super::REDRIVEN_FROM_HEADER;
use crate::{
    dead_letter::{DeadLetter, rfc3339},
    event::Event,
    identity::EVENT_ID_HEADER,
    message::Message,
};

/// Headers with the time of an event that is no CloudEvent. The first one is written.
const EVENT_TIME: [&str; 2] = ["event_time", "event-time"];

/// The message of a letter with the identity of its event.
///
/// - `Semel-Event-Id` keeps the id of the event, because the copy gets a new message id: a broker that deduplicates by
///   message id would drop a copy with the original one.
/// - The header `event_time` keeps the day of an event that has no time of its own, because the copy gets another time
///   of publication. A partitioned inbox finds its record by that day.
pub(super) fn copy_to_publish(letter: &DeadLetter) -> Message {
    let original = &*letter.message;
    let event = Event::from_message(letter.message.clone()).ok();
    let mut headers = Vec::new();
    if let Some(published_at) =
        original.published_at.filter(|_| !has_time(original, event.as_ref()))
    {
        headers.push(header(EVENT_TIME[0], &rfc3339::format(published_at)));
    }
    headers.push(header(REDRIVEN_FROM_HEADER, &letter.id));
    if let Some(id) = event_id(letter, event.as_ref()) {
        headers.push(header(EVENT_ID_HEADER, &id));
    }
    let is_replaced =
        |old: &Header| headers.iter().any(|new| new.name.eq_ignore_ascii_case(&old.name));
    let kept = original.headers.iter().filter(|old| !is_replaced(old));
    Message {
        body: original.body.clone(),
        is_tombstone: original.is_tombstone,
        headers: kept.chain(&headers).cloned().collect(),
        topic: original.topic.clone(),
        message_id: original.message_id.as_ref().map(|_| new_message_id(letter)),
        record_key: original.record_key.clone(),
        ordering_key: original.ordering_key.clone(),
        reply_to: original.reply_to.clone(),
        ..Message::default()
    }
}

fn header(name: &str, value: &str) -> Header {
    Header { name: name.to_owned(), value: value.to_owned().into() }
}

/// An id with a control character cannot be a header. It comes from the body, where the copy has it, too.
fn event_id(letter: &DeadLetter, event: Option<&Event>) -> Option<String> {
    let of_event = || event?.event_id().map(Cow::into_owned);
    let id = letter.event_id.clone().or_else(of_event)?;
    (!id.chars().any(char::is_control)).then_some(id)
}

fn has_time(original: &Message, event: Option<&Event>) -> bool {
    event.is_some_and(|event| event.attributes.time.is_some())
        || EVENT_TIME.iter().any(|name| original.header(name).is_some())
}

/// Never the same twice: if the broker dropped a copy as a duplicate, and the earlier one was lost, the event would be
/// lost.
fn new_message_id(letter: &DeadLetter) -> String {
    format!("{}-{:016x}", letter.id, rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dead_letter::format::tests::{letter, tombstone_letter};

    fn of(message: Message) -> DeadLetter {
        DeadLetter { event_id: None, message: Arc::new(message), ..letter() }
    }

    fn event_of(copy: &Message) -> Event {
        Event::from_message(Arc::new(copy.clone())).unwrap()
    }

    #[test]
    fn a_copy_is_the_same_event_under_a_new_message_id() {
        let body = r#"{"event_id":"of the body"}"#;
        for message in [
            Message::new("orders", body),
            Message::new("orders", body).with_id("m-1"),
            Message::new("orders", body).with_id("m-1").with_header("Idempotency-Key", "k-1"),
            Message::new("orders", body)
                .with_id("m-1")
                .with_header("ce-specversion", "1.0")
                .with_header("ce-id", "1")
                .with_header("ce-source", "/shop")
                .with_header("ce-type", "t"),
        ] {
            let before = Event::from_message(Arc::new(message.clone())).unwrap();
            let copy = copy_to_publish(&of(message.clone()));
            let after = event_of(&copy);
            assert_eq!(after.event_id(), before.event_id());
            assert_eq!(after.fingerprint(), before.fingerprint());
            assert_eq!(copy.body, message.body);
            assert_eq!(copy.headers[..message.headers.len()], message.headers[..]);
            assert_eq!(copy.message_id.is_some(), message.message_id.is_some());
            assert_ne!(copy.message_id, message.message_id.or(Some(String::new())));
            assert_eq!(copy.header("Semel-Redriven-From"), Some(&*letter().id));
        }
    }

    #[test]
    fn the_id_that_the_consumer_found_is_kept() {
        let copy = copy_to_publish(&letter());
        assert_eq!(event_of(&copy).event_id().as_deref(), letter().event_id.as_deref());
        assert_eq!(copy.ordering_key, letter().message.ordering_key);
        assert_eq!(copy.record_key, letter().message.record_key);
        assert_eq!(copy.reply_to, letter().message.reply_to);
        assert_eq!((copy.deliveries, copy.published_at, copy.position.as_str()), (None, None, ""));
    }

    #[test]
    fn a_copy_of_a_tombstone_is_a_tombstone() {
        let copy = copy_to_publish(&tombstone_letter());
        assert!(copy.is_tombstone && copy.body.is_empty());
        assert!(!copy_to_publish(&letter()).is_tombstone);
    }

    #[test]
    fn two_copies_have_two_message_ids() {
        let (one, other) = (copy_to_publish(&letter()), copy_to_publish(&letter()));
        assert_ne!(one.message_id, other.message_id);
        assert_eq!(one.headers, other.headers);
    }

    /// A redriven event that fails again is a letter, and that letter is redriven.
    #[test]
    fn a_copy_of_a_copy_has_each_header_once() {
        let first = copy_to_publish(&letter());
        let received = Message { published_at: Some(rfc3339::from_micros(7)), ..first.clone() };
        let second = copy_to_publish(&DeadLetter { message: Arc::new(received), ..letter() });
        assert_eq!(second.headers, first.headers, "the time of the first publication is kept, too");
    }

    #[test]
    fn an_event_without_a_time_keeps_that_of_its_publication() {
        let published = |message: Message| {
            let message = Message {
                published_at: Some(rfc3339::from_micros(1_700_000_000_123_456)),
                ..message
            };
            copy_to_publish(&of(message))
        };
        let copy = published(Message::new("t", "x"));
        assert_eq!(copy.header("event_time"), Some("2023-11-14T22:13:20.123456Z"));
        assert_eq!(event_of(&copy).attributes.time.as_deref(), Some("2023-11-14T22:13:20.123456Z"));
        for name in ["event_time", "event-time", "Event_Time"] {
            let copy = published(Message::new("t", "x").with_header(name, "2023-01-01"));
            assert_eq!(event_of(&copy).attributes.time.as_deref(), Some("2023-01-01"));
            assert_eq!(
                copy.headers
                    .iter()
                    .filter(|it| it.name.to_lowercase().starts_with("event"))
                    .count(),
                1
            );
        }
        let cloud_event = Message::new("t", "x")
            .with_header("ce-specversion", "1.0")
            .with_header("ce-id", "1")
            .with_header("ce-source", "/shop")
            .with_header("ce-type", "t");
        assert!(published(cloud_event.clone()).header("event_time").is_some());
        assert_eq!(
            published(cloud_event.with_header("ce-time", "2023-01-01T00:00:00Z"))
                .header("event_time"),
            None
        );
        assert_eq!(copy_to_publish(&of(Message::new("t", "x"))).header("event_time"), None);
    }

    #[test]
    fn an_id_that_cannot_be_a_header_stays_in_the_body() {
        let body = r#"{"event_id":"a\r\nNats-Rollup: all"}"#;
        let copy = copy_to_publish(&of(Message::new("t", body)));
        assert_eq!(copy.header(EVENT_ID_HEADER), None);
        assert_eq!(event_of(&copy).event_id().as_deref(), Some("a\r\nNats-Rollup: all"));
    }
}
