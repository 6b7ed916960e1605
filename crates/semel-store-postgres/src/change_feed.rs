//! The change feed: NOTIFY and LISTEN on a connection of their own.
//!
//! A transaction with NOTIFY takes a lock on the whole server while it commits, so it never carries a record. It
//! is sent after the change is durable, many keys at a time. If a notification is lost, a waiter finds the change
//! by its next poll.

use std::{sync::Arc, time::Duration};

use semel_core::{ChangeFeed, KeyHash, Result};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    time::timeout,
};

use crate::{
    backoff::PgBackoff,
    connection::{ConnectionPurpose, PgConnection, within_connect_timeout},
    error::{explain, timed_out},
    settings::PgSettings,
};

/// Notifies other nodes that keys changed. The listener ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct PgNotifier(Sender<KeyHash>);

/// Keys that wait to be sent. Keys beyond that are not sent, and waiters find the change by polling.
const QUEUE_CAPACITY: usize = 65_536;

/// Keys in one notification: a payload has less than 8,000 bytes.
const KEYS_PER_NOTIFICATION: usize = 120;

const HEX: usize = 64;

/// An idle connection looks like a dead one: after this long without traffic it is checked.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

impl PgNotifier {
    /// A notifier, and the task that it needs to run.
    pub(crate) fn new(
        settings: Arc<PgSettings>,
        feed: ChangeFeed,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, changed_keys) = mpsc::channel(QUEUE_CAPACITY);
        (Self(sender), PgListener { settings, feed, changed_keys }.run())
    }

    /// Queues a notification of this key.
    pub(crate) fn notify(&self, key: &KeyHash) {
        let _ = self.0.try_send(*key);
    }
}

struct PgListener {
    settings: Arc<PgSettings>,
    feed: ChangeFeed,
    changed_keys: Receiver<KeyHash>,
}

/// Why the listener stopped serving a connection.
enum ListenEnd {
    /// The store is dropped.
    Closed,
    Lost,
}

impl PgListener {
    async fn run(mut self) {
        let mut backoff = PgBackoff::default();
        loop {
            match self.connect().await {
                Ok(connection) => {
                    backoff = PgBackoff::default();
                    let _connected = self.feed.connected();
                    if let ListenEnd::Closed = self.serve(connection).await {
                        return;
                    }
                    tracing::warn!(
                        "postgres: lost the connection of the change feed; waiters poll until it is back"
                    );
                }
                Err(error) => {
                    tracing::debug!(%error, "postgres: no connection for the change feed")
                }
            }
            if let ListenEnd::Closed = self.pause(backoff.next()).await {
                return;
            }
        }
    }

    async fn connect(&self) -> Result<PgConnection> {
        let feed = self.feed.clone();
        let connection = PgConnection::listening(
            &self.settings,
            ConnectionPurpose::ChangeFeed,
            move |notification| {
                keys(notification.payload()).for_each(|key| feed.notify(&key));
            },
        )
        .await?;
        let listen = format!("LISTEN \"{}\"", self.settings.names.channel());
        let listening = async {
            connection.client.batch_execute(&listen).await.map_err(|error| explain(&error))
        };
        within_connect_timeout(&self.settings, listening).await?;
        Ok(connection)
    }

    async fn serve(&mut self, mut connection: PgConnection) -> ListenEnd {
        let mut keys = Vec::with_capacity(KEYS_PER_NOTIFICATION);
        let idle = IDLE_CHECK_INTERVAL.min(self.settings.call_timeout);
        loop {
            let count = tokio::select! {
                count = self.changed_keys.recv_many(&mut keys, 8 * KEYS_PER_NOTIFICATION) => Some(count),
                () = tokio::time::sleep(idle) => None,
                () = connection.closed() => return ListenEnd::Lost,
            };
            let sent = match count {
                Some(0) => return ListenEnd::Closed,
                Some(_) => self.notify(&connection, &keys).await,
                None => self.within_call_timeout(connection.client.check_connection()).await,
            };
            if let Err(error) = sent {
                tracing::warn!(%error, "postgres: the connection of the change feed does not answer");
                return ListenEnd::Lost;
            }
            keys.clear();
        }
    }

    async fn notify(&self, connection: &PgConnection, keys: &[KeyHash]) -> Result<()> {
        let payloads: Vec<String> = keys
            .chunks(KEYS_PER_NOTIFICATION)
            .map(|keys| keys.iter().map(KeyHash::to_hex).collect())
            .collect();
        let (channel, notify) = (
            self.settings.names.channel(),
            "SELECT pg_notify($1, told) FROM unnest($2::text[]) AS told",
        );
        self.within_call_timeout(connection.client.execute(notify, &[&channel, &payloads]))
            .await
            .map(drop)
    }

    async fn within_call_timeout<T>(
        &self,
        reply: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match timeout(self.settings.call_timeout, reply).await {
            Ok(reply) => reply.map_err(|error| explain(&error)),
            Err(_) => Err(timed_out()),
        }
    }

    /// Waits, and drops the keys that are queued meanwhile: their notifications would come too late.
    async fn pause(&mut self, pause: Duration) -> ListenEnd {
        let sleep = tokio::time::sleep(pause);
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                () = &mut sleep => return ListenEnd::Lost,
                key = self.changed_keys.recv() => if key.is_none() {
                    return ListenEnd::Closed;
                },
            }
        }
    }
}

/// The keys of a payload. Any client may notify on the channel; a payload that is not semel's has no keys.
fn keys(payload: &str) -> impl Iterator<Item = KeyHash> {
    payload.as_bytes().chunks_exact(HEX).filter_map(|hex| {
        let mut bytes = [0; HEX / 2];
        for (byte, digits) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(KeyHash::from_bytes(bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_and_foreign_payloads_have_none() {
        let all = [1, 2, 250].map(|byte| KeyHash::from_bytes([byte; 32]));
        let payload: String = all.iter().map(KeyHash::to_hex).collect();
        assert_eq!(keys(&payload).collect::<Vec<_>>(), all);
        for foreign in ["", "hello", &"ö".repeat(32), &"+f".repeat(32)] {
            assert!(keys(foreign).all(|key| !all.contains(&key)), "{foreign}");
        }
        const { assert!(KEYS_PER_NOTIFICATION * HEX < 8000) };
    }
}
