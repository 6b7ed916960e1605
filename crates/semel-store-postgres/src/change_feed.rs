//! News for and from other nodes, by NOTIFY and LISTEN on a connection of their own.
//!
//! NOTIFY takes a lock on the whole server while it commits, so it never shares a transaction with a
//! record. It is sent after the change is durable, many keys at a time; one that is lost costs a waiter
//! its next poll.

use std::{sync::Arc, time::Duration};

use semel_core::{ChangeFeed, KeyHash, Result};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    time::timeout,
};

use crate::{
    backoff::Backoff,
    connection::{Purpose, Session, in_time},
    error::{explain, timed_out},
    settings::Settings,
};

/// Tells other nodes that keys changed. The listener ends when the last clone is gone.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Sender<KeyHash>);

/// Keys that wait to be told at most; beyond that the pollers have to find out by themselves.
const QUEUED: usize = 65_536;

/// Keys in one notification: a payload has less than 8,000 bytes.
const IN_ONE: usize = 120;

const HEX: usize = 64;

/// A connection that says nothing looks like one that is dead: after so long it is asked.
const SILENCE: Duration = Duration::from_secs(5);

impl Bell {
    /// A bell, and what has to be run for it.
    pub(crate) fn new(
        settings: Arc<Settings>,
        feed: ChangeFeed,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (tell, told) = mpsc::channel(QUEUED);
        (Self(tell), Listener { settings, feed, told }.run())
    }

    /// Others are told of this key soon.
    pub(crate) fn ring(&self, key: &KeyHash) {
        let _ = self.0.try_send(*key);
    }
}

struct Listener {
    settings: Arc<Settings>,
    feed: ChangeFeed,
    told: Receiver<KeyHash>,
}

/// Why a connection is not served any more.
enum End {
    /// Nobody rings any more.
    Closed,
    Lost,
}

impl Listener {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            match self.connect().await {
                Ok(session) => {
                    backoff = Backoff::default();
                    let _connected = self.feed.connected();
                    if let End::Closed = self.serve(session).await {
                        return;
                    }
                    tracing::warn!(
                        "postgres: lost the connection for news; waiters poll until it is back"
                    );
                }
                Err(error) => tracing::debug!(%error, "postgres: no connection for news"),
            }
            if let End::Closed = self.pause(backoff.next()).await {
                return;
            }
        }
    }

    async fn connect(&self) -> Result<Session> {
        let feed = self.feed.clone();
        let session = Session::listening(&self.settings, Purpose::News, move |notification| {
            keys(notification.payload()).for_each(|key| feed.notify(&key));
        })
        .await?;
        let listen = format!("LISTEN \"{}\"", self.settings.names.channel());
        let listening =
            async { session.client.batch_execute(&listen).await.map_err(|error| explain(&error)) };
        in_time(&self.settings, listening).await?;
        Ok(session)
    }

    async fn serve(&mut self, mut session: Session) -> End {
        let mut keys = Vec::with_capacity(IN_ONE);
        let silence = SILENCE.min(self.settings.call_timeout);
        loop {
            let count = tokio::select! {
                count = self.told.recv_many(&mut keys, 8 * IN_ONE) => Some(count),
                () = tokio::time::sleep(silence) => None,
                () = session.gone() => return End::Lost,
            };
            let answered = match count {
                Some(0) => return End::Closed,
                Some(_) => self.notify(&session, &keys).await,
                None => self.in_time(session.client.check_connection()).await,
            };
            if let Err(error) = answered {
                tracing::warn!(%error, "postgres: the connection for news does not answer");
                return End::Lost;
            }
            keys.clear();
        }
    }

    async fn notify(&self, session: &Session, keys: &[KeyHash]) -> Result<()> {
        let payloads: Vec<String> =
            keys.chunks(IN_ONE).map(|keys| keys.iter().map(KeyHash::to_hex).collect()).collect();
        let (channel, tell) = (
            self.settings.names.channel(),
            "SELECT pg_notify($1, told) FROM unnest($2::text[]) AS told",
        );
        self.in_time(session.client.execute(tell, &[&channel, &payloads])).await.map(drop)
    }

    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match timeout(self.settings.call_timeout, answer).await {
            Ok(answer) => answer.map_err(|error| explain(&error)),
            Err(_) => Err(timed_out()),
        }
    }

    /// Forgets what is told meanwhile: nobody could be told in time.
    async fn pause(&mut self, pause: Duration) -> End {
        let sleep = tokio::time::sleep(pause);
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                () = &mut sleep => return End::Lost,
                key = self.told.recv() => if key.is_none() {
                    return End::Closed;
                },
            }
        }
    }
}

/// The keys of a payload. Anybody may notify on the channel; what is not ours says nothing.
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
    fn keys_come_back_and_foreign_payloads_say_nothing() {
        let all = [1, 2, 250].map(|byte| KeyHash::from_bytes([byte; 32]));
        let payload: String = all.iter().map(KeyHash::to_hex).collect();
        assert_eq!(keys(&payload).collect::<Vec<_>>(), all);
        for foreign in ["", "hello", &"ö".repeat(32), &"+f".repeat(32)] {
            assert!(keys(foreign).all(|key| !all.contains(&key)), "{foreign}");
        }
        const { assert!(IN_ONE * HEX < 8000) };
    }
}
