//! Publishes messages to the streams that capture their subjects.

use std::fmt;

use async_nats::{Client, HeaderMap};
use async_trait::async_trait;
use semel_consumer::{Message, dead_letter::MessagePublisher};
use semel_core::{Error, Header, Result};

use crate::{
    connection::{Connection, Connector},
    error::{self, RequestError},
    headers::{self, MESSAGE_ID},
    message::{ORDERING_KEY_HEADERS, REPLY_TO_HEADERS},
    url::{NatsUrl, is_subject},
};

const EXAMPLE: &str = "nats://USER:PASSWORD@HOST:4222, nats://HOST,HOST or nats+tls://HOST?ca=FILE";

/// Publishes messages to JetStream: to the subject that is the topic of the message, and waits until a stream has
/// stored it. For redriving dead letters.
///
/// Headers that begin with `Nats-` are not sent: they were instructions to the server about the original message, such
/// as to expect a sequence or to replace other messages. `Nats-Msg-Id` is the id of the message, if it has one.
#[derive(Clone)]
pub struct NatsPublisher {
    connection: Connection,
}

impl NatsPublisher {
    /// Connects to `nats://[USER:PASSWORD@]HOST[:PORT]`. The URL of a source will do, too: the rest of it is ignored.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when the URL is wrong;
    /// [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when there is no server to connect to.
    pub async fn connect(url: &str) -> Result<Self> {
        let NatsUrl { address, domain, .. } = NatsUrl::parse(url, EXAMPLE)?;
        let connection = Connector::Address(address).connect(domain.as_deref()).await?;
        Ok(Self { connection })
    }

    /// Publishes on a connection that the caller has opened.
    #[must_use]
    pub fn from_client(client: Client) -> Self {
        Self { connection: Connection::of_caller(client, None) }
    }
}

#[async_trait]
impl MessagePublisher for NatsPublisher {
    async fn publish(&self, message: &Message) -> Result<()> {
        if !is_subject(&message.topic) {
            return Err(Error::invalid(format!(
                "nats: {:?} is no subject to publish to",
                message.topic
            )));
        }
        let map = headers_of(message)?;
        let ack =
            self.connection.jetstream.publish(&message.topic, map, message.body.clone()).await;
        ack.map_err(|error| match error {
            RequestError::NoResponders => error::not_captured(&message.topic),
            error => error.about(&format!("the stream of {}", message.topic)),
        })?;
        // The stream has the message even if it is a duplicate of one that it has stored before.
        Ok(())
    }
}

fn headers_of(message: &Message) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    for Header { name, value } in &message.headers {
        if !headers::is_instruction(name) && !headers::append(&mut map, name, value) {
            return Err(Error::invalid(format!(
                "nats: the header {name:?} cannot be sent: it is not a line of text"
            )));
        }
    }
    let set = [
        (MESSAGE_ID, &message.message_id, &[][..]),
        (ORDERING_KEY_HEADERS[0], &message.ordering_key, &ORDERING_KEY_HEADERS[..]),
        (REPLY_TO_HEADERS[0], &message.reply_to, &REPLY_TO_HEADERS[..]),
    ];
    for (name, value, present) in set {
        // What the producer has set is in the headers already.
        let Some(value) = value else { continue };
        if present.iter().any(|name| message.header(name).is_some()) {
            continue;
        }
        if !headers::append(&mut map, name, value.as_bytes()) {
            return Err(Error::invalid(format!(
                "nats: {name} cannot be sent: it is not a line of text"
            )));
        }
    }
    Ok(map)
}

impl fmt::Debug for NatsPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsPublisher").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(message: &Message) -> Vec<(String, String)> {
        let headers = headers::from_map(Some(&headers_of(message).unwrap()));
        let text =
            |header: Header| (header.name, String::from_utf8(header.value.to_vec()).unwrap());
        headers.into_iter().map(text).collect()
    }

    #[test]
    fn instructions_of_the_original_are_not_sent_again() {
        let message = Message::new("orders", "x")
            .with_header("Nats-Msg-Id", "old")
            .with_header("nats-expected-last-sequence", "7")
            .with_header("Nats-Rollup", "all")
            .with_header("Tenant", "t")
            .with_id("new");
        let expected = [("Nats-Msg-Id", "new"), ("Tenant", "t")];
        assert_eq!(
            sent(&message),
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn what_only_the_fields_say_becomes_a_header() {
        let plain = Message::new("orders", "x").with_ordering_key("k");
        assert_eq!(sent(&plain), [("Semel-Ordering-Key".to_owned(), "k".to_owned())]);
        let message = plain.with_header("CE-PartitionKey", "k");
        assert_eq!(sent(&message), [("CE-PartitionKey".to_owned(), "k".to_owned())]);
        let reply = Message { reply_to: Some("a.b".into()), ..Message::new("orders", "x") };
        assert_eq!(sent(&reply), [("Semel-Reply-To".to_owned(), "a.b".to_owned())]);
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_named_and_not_shown() {
        let message = Message::new("orders", "x").with_header("Blob", &b"canary\r\n\xff"[..]);
        let error = headers_of(&message).unwrap_err().to_string();
        assert!(error.contains("Blob") && !error.contains("canary"), "{error}");
    }
}
