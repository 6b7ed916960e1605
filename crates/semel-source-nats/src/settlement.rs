//! Settles a delivery: a message to its acknowledgement subject, which the server answers.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use async_nats::{Client, Subject};
use async_trait::async_trait;
use bytes::Bytes;
use semel_consumer::Settlement;
use semel_core::Result;

use crate::{
    connection::is_connected,
    error::{connection_lost, not_published},
    jetstream::settle,
};

/// The longest reason that is sent.
const MAX_REASON: usize = 200;

/// Whether to wait until the server has confirmed a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acks {
    Confirmed,
    Unconfirmed,
}

pub(crate) struct NatsSettlement {
    client: Client,
    subject: Subject,
    acks: Acks,
    /// After it is settled, the deadline is not extended any more: that would move the time of a delayed redelivery.
    is_settled: AtomicBool,
}

impl NatsSettlement {
    pub(crate) fn new(client: Client, subject: Subject, acks: Acks) -> Self {
        Self { client, subject, acks, is_settled: AtomicBool::new(false) }
    }

    async fn settle(&self, payload: Bytes) -> Result<()> {
        self.is_settled.store(true, SeqCst);
        match self.acks {
            // The server answers the acknowledgement once it has applied it, in a cluster once a majority has it.
            Acks::Confirmed => settle(&self.client, &self.subject, payload).await,
            Acks::Unconfirmed => self.send(payload).await,
        }
    }

    /// Without waiting for the server. The driver's queue fills up while there is no connection, so nothing is added to
    /// it then.
    async fn send(&self, payload: Bytes) -> Result<()> {
        if !is_connected(&self.client) {
            return Err(connection_lost());
        }
        self.client.publish(self.subject.clone(), payload).await.map_err(not_published)
    }

    /// Servers before 2.10.4 do not understand a `+TERM` with a reason, and answer it nevertheless.
    fn takes_reasons(&self) -> bool {
        self.client.is_server_compatible(2, 10, 4)
    }
}

#[async_trait]
impl Settlement for NatsSettlement {
    async fn ack(&self) -> Result<()> {
        self.settle(Bytes::from_static(b"+ACK")).await
    }

    async fn nack(&self, delay: Duration) -> Result<()> {
        self.settle(nak(delay)).await
    }

    async fn reject(&self, reason: &str) -> Result<()> {
        self.settle(if self.takes_reasons() { term(reason) } else { term("") }).await
    }

    async fn extend(&self) -> Result<()> {
        if self.is_settled.load(SeqCst) {
            return Ok(());
        }
        self.send(Bytes::from_static(b"+WPI")).await
    }
}

fn nak(delay: Duration) -> Bytes {
    if delay.is_zero() {
        return Bytes::from_static(b"-NAK");
    }
    // The server reads a signed number of nanoseconds.
    let nanos = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX / 2);
    format!("-NAK {{\"delay\":{nanos}}}").into()
}

fn term(reason: &str) -> Bytes {
    let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
    let line = reason.replace(|c: char| c.is_control(), " ");
    format!("+TERM {}", line.trim()).trim_end().to_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_what_the_server_reads() {
        assert_eq!(nak(Duration::ZERO), "-NAK");
        assert_eq!(nak(Duration::from_millis(1500)), "-NAK {\"delay\":1500000000}");
        assert_eq!(nak(Duration::MAX), format!("-NAK {{\"delay\":{}}}", i64::MAX / 2));
        assert_eq!(term(""), "+TERM");
        assert_eq!(term(" no\r\nmoney "), "+TERM no  money");
        assert_eq!(term(&"ä".repeat(200)).len(), "+TERM ".len() + MAX_REASON);
    }
}
