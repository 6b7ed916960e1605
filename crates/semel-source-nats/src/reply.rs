//! Sends the recorded outcome of a message to the subject that its producer named.
//!
//! It is an ordinary message, not a JetStream publish: usually a subscriber waits for it, and would see the subject for
//! the acknowledgement as a request to answer. A stream may capture the subject nevertheless. When this returns, the
//! server has taken the reply; whether a subscriber or a stream has received it is not known.

use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use futures_util::StreamExt;
use semel_consumer::{Message, reply_headers};
use semel_core::{Body, Outcome, Result};
use tokio::time::timeout;

use crate::{error, headers, jetstream::CALL_TIMEOUT, url::is_subject};

/// Sends `outcome`, if `message` names a subject. A reply that can never be sent is given up, with a warning: the
/// producer chose the subject, and its message must not be redelivered for ever because of that.
pub(crate) async fn send(client: &Client, message: &Message, outcome: &Outcome) -> Result<()> {
    let Some(subject) = &message.reply_to else { return Ok(()) };
    if !is_allowed(subject) {
        tracing::warn!(
            position = message.position,
            "nats: the message names no subject that can be replied to"
        );
        return Ok(());
    }
    let body = match outcome.body() {
        Body::Kept(bytes) => bytes.clone(),
        Body::Omitted { .. } => Bytes::new(),
    };
    let headers = headers_of(message, outcome);
    if body.len() + size(&headers) > client.max_payload() {
        tracing::warn!(
            position = message.position,
            "nats: the reply is larger than the server's max_payload"
        );
        return Ok(());
    }
    let sent = async {
        let published = client.publish_with_headers(subject.clone(), headers, body).await;
        published.map_err(error::not_published)?;
        round_trip(client).await
    };
    timeout(CALL_TIMEOUT, sent).await.map_err(|_| error::timed_out())?
}

/// Subjects that begin with `$` belong to the server. A producer must not use this worker's permissions to delete a
/// stream or to settle messages.
fn is_allowed(subject: &str) -> bool {
    is_subject(subject) && !subject.starts_with('$')
}

fn headers_of(message: &Message, outcome: &Outcome) -> HeaderMap {
    let mut map = HeaderMap::new();
    for header in reply_headers(message, outcome) {
        headers::append(&mut map, &header.name, &header.value);
    }
    map
}

fn size(headers: &HeaderMap) -> usize {
    let line = |(name, values): (&async_nats::HeaderName, &Vec<async_nats::HeaderValue>)| -> usize {
        let name: &str = name.as_ref();
        values.iter().map(|value| name.len() + value.as_str().len() + ": \r\n".len()).sum()
    };
    "NATS/1.0\r\n\r\n".len() + headers.iter().map(line).sum::<usize>()
}

/// Sends a message to this connection itself: when it arrives, the server has taken all that was sent before.
async fn round_trip(client: &Client) -> Result<()> {
    let inbox = client.new_inbox();
    let subscribed = client.subscribe(inbox.clone()).await;
    let mut echo = subscribed.map_err(|error| error::connection_lost().with_source(error))?;
    client.publish(inbox, Bytes::new()).await.map_err(error::not_published)?;
    echo.next().await.map(drop).ok_or_else(error::closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_of_the_server_is_not_replied_to() {
        assert!(is_allowed("replies.7") && is_allowed("_INBOX.x.y"));
        for subject in ["$JS.API.STREAM.DELETE.ORDERS", "$SYS.x", "a b", "a.>", "", "a\r\nPUB b 0"]
        {
            assert!(!is_allowed(subject), "{subject:?}");
        }
    }

    #[test]
    fn the_size_of_the_headers_counts() {
        let message = Message::new("orders", "x").with_id("m-1");
        let map = headers_of(&message, &Outcome::failure("declined", "no\r\nmoney"));
        assert_eq!(map.get("Semel-Status").map(|it| it.as_str()), Some("failure"));
        assert!(size(&map) > 60);
    }
}
