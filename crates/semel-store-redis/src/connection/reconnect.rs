//! A connection that is opened again after it was lost.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use semel_core::{Error, Result, background};
use tokio::{
    sync::Notify,
    task::{JoinError, JoinHandle},
    time::{sleep, timeout},
};

use crate::{
    connection::RedisConnection,
    error::{is_timeout, unavailable},
    settings::RedisSettings,
};

/// How long requests wait for a connection if the server did not answer the last attempt.
const GRACE: Duration = Duration::from_millis(100);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The least time between the first two attempts, however many requests wait for a connection. It doubles after each
/// attempt, up to the longest.
const FIRST_LEAST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_LEAST_PAUSE: Duration = Duration::from_millis(250);
/// How long a server may take to answer a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after a panic: on a runtime without sockets, every attempt panics.
const AFTER_PANIC: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });

/// A connection, or a task that opens one.
#[derive(Debug)]
pub(crate) struct ReconnectingConnection {
    settings: Arc<RedisSettings>,
    state: RedisConnectionState,
    progress: Arc<ConnectProgress>,
}

/// What the connecting task reports, and how callers wake it.
#[derive(Debug, Default)]
struct ConnectProgress {
    failure: Mutex<ConnectFailure>,
    /// Notified when an attempt failed.
    failed: Notify,
    /// Notified when a request waits: the next attempt is made at once.
    wanted: Notify,
}

#[derive(Clone, Debug, Default)]
struct ConnectFailure {
    /// Why there is no connection.
    why: Option<Error>,
    /// The server did not answer within the call timeout. Any other failure shows at once that the server cannot be
    /// reached.
    is_slow: bool,
}

impl ConnectProgress {
    /// Requests fail with this as a retryable error, whatever kind the cause has.
    fn failed_with(&self, error: &Error) {
        let is_slow = is_timeout(error);
        *self.failure.lock() =
            ConnectFailure { why: Some(unavailable(error.to_string())), is_slow };
    }

    fn why(&self) -> Error {
        self.failure.lock().why.clone().unwrap_or_else(not_connected)
    }
}

#[derive(Debug)]
enum RedisConnectionState {
    Open(RedisConnection),
    Opening(JoinHandle<RedisConnection>),
}

impl ReconnectingConnection {
    pub(crate) async fn open(settings: Arc<RedisSettings>) -> Result<Self> {
        let connection = settings.open().await?;
        Ok(Self {
            settings,
            state: RedisConnectionState::Open(connection),
            progress: Arc::default(),
        })
    }

    /// A connection that a background task opens.
    pub(crate) fn open_in_background(settings: Arc<RedisSettings>) -> Self {
        let progress = Arc::<ConnectProgress>::default();
        let task = tokio::spawn(connect_until_open(settings.clone(), progress.clone()));
        Self { settings, state: RedisConnectionState::Opening(task), progress }
    }

    /// The connection, or why there is none. After a loss, the caller waits until one attempt to connect has succeeded
    /// or failed: only that shows whether the server can be reached.
    pub(crate) async fn ready(&mut self) -> Result<&mut RedisConnection> {
        if let RedisConnectionState::Opening(task) = &mut self.state {
            let longest_wait = match self.progress.failure.lock().is_slow {
                true => GRACE,
                false => self.settings.call_timeout,
            };
            let failed = self.progress.failed.notified();
            self.progress.wanted.notify_one();
            let opened = async {
                tokio::select! {
                    biased;
                    opened = task => Some(opened),
                    () = failed => None,
                }
            };
            match timeout(longest_wait, opened).await {
                Ok(Some(Ok(connection))) => self.state = RedisConnectionState::Open(connection),
                Ok(Some(Err(error))) => self.retry_after(&error),
                Ok(None) | Err(_) => {}
            }
        }
        match &mut self.state {
            RedisConnectionState::Open(connection) => Ok(connection),
            RedisConnectionState::Opening(_) => Err(self.progress.why()),
        }
    }

    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.state, RedisConnectionState::Open(_))
    }

    /// Waits until there is a connection. The future may be dropped at any time.
    pub(crate) async fn wait_until_open(&mut self) {
        loop {
            match &mut self.state {
                RedisConnectionState::Open(_) => return,
                RedisConnectionState::Opening(opening) => match opening.await {
                    Ok(connection) => self.state = RedisConnectionState::Open(connection),
                    Err(error) => self.retry_after(&error),
                },
            }
        }
    }

    /// Starts the connecting task again after it ended without a connection. After a panic it waits first, since the
    /// task may panic again.
    fn retry_after(&mut self, error: &JoinError) {
        if !error.is_panic() {
            return self.reopen();
        }
        tracing::error!("redis: opening a connection panicked; semel tries again later");
        *self.progress.failure.lock() = ConnectFailure { why: Some(panicked()), is_slow: true };
        let (settings, progress) = (self.settings.clone(), self.progress.clone());
        // On the background runtime: this runtime may have no timers.
        let pause = background::handle().spawn(async { sleep(AFTER_PANIC).await });
        self.state = RedisConnectionState::Opening(tokio::spawn(async move {
            let _ = pause.await;
            connect_until_open(settings, progress).await
        }));
    }

    /// Drops the connection and opens another. The store's other connections are checked, since they may be lost for
    /// the same reason.
    pub(crate) fn discard(&mut self, why: &Error) {
        self.replace(why);
        self.settings.recheck.send_replace(());
    }

    /// Checks the connection, and replaces it if the server does not answer on it.
    pub(crate) async fn check(&mut self) {
        if let RedisConnectionState::Open(connection) = &mut self.state
            && let Err(why) = connection
                .check(self.settings.pace.limit(CHECK_TIMEOUT.min(self.settings.call_timeout)))
                .await
        {
            self.replace(&why);
        }
    }

    fn replace(&mut self, why: &Error) {
        tracing::warn!(%why, "redis: connection dropped");
        self.progress.failed_with(why);
        self.reopen();
    }

    fn reopen(&mut self) {
        let task = tokio::spawn(connect_until_open(self.settings.clone(), self.progress.clone()));
        self.state = RedisConnectionState::Opening(task);
    }
}

impl Drop for ReconnectingConnection {
    fn drop(&mut self) {
        if let RedisConnectionState::Opening(opening) = &self.state {
            opening.abort();
        }
    }
}

async fn connect_until_open(
    settings: Arc<RedisSettings>,
    progress: Arc<ConnectProgress>,
) -> RedisConnection {
    let (mut least, mut pause) = (FIRST_LEAST_PAUSE, FIRST_PAUSE);
    loop {
        match settings.pace.connect(|| settings.open()).await {
            Ok(connection) => {
                tracing::info!("redis: connected");
                return connection;
            }
            Err(error) => progress.failed_with(&error),
        }
        progress.failed.notify_waiters();
        sleep(least.mul_f64(rand::random_range(0.5..1.0))).await;
        least = (least * 2).min(LONGEST_LEAST_PAUSE);
        let rest = sleep(pause.mul_f64(rand::random_range(0.5..1.0)));
        tokio::select! {
            () = rest => pause = settings.pace.limit((pause * 2).min(LONGEST_PAUSE)),
            () = progress.wanted.notified() => {}
        }
    }
}

fn panicked() -> Error {
    unavailable("redis: opening a connection panicked, see the log; semel tries again every 30 s")
}

fn not_connected() -> Error {
    unavailable("redis: there is no connection; one is being opened")
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, time::Instant};

    use super::*;
    use crate::{RedisStore, meta::RedisRole};

    fn connection(url: &str, opening: JoinHandle<RedisConnection>) -> ReconnectingConnection {
        let settings =
            RedisStore::builder(url).settings(RedisRole::Store).expect("the settings are right");
        ReconnectingConnection {
            settings: Arc::new(settings),
            state: RedisConnectionState::Opening(opening),
            progress: Arc::default(),
        }
    }

    #[tokio::test]
    async fn a_connection_is_opened_again_after_a_panic() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("redis://{}", server.local_addr().expect("its address"));
        let mut connection = connection(&url, tokio::spawn(async { panic!("made up") }));
        let error = connection.ready().await.expect_err("it panicked");
        assert!(error.to_string().contains("panicked"), "{error}");
        let accepted = tokio::task::spawn_blocking(move || server.accept());
        let accepted = timeout(AFTER_PANIC * 10, accepted).await.expect("it is opened again");
        accepted.expect("the listener accepts").expect("a connection");
    }

    /// The runtime of this test has neither timers nor sockets.
    #[test]
    fn a_runtime_without_sockets_does_not_retry_in_a_loop() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("one starts");
        runtime.block_on(async {
            let started_at = Instant::now();
            let opening = tokio::spawn(async { panic!("made up") });
            let mut connection = connection("redis://127.0.0.1:1", opening);
            let pause = background::handle().spawn(async { sleep(AFTER_PANIC / 2).await });
            tokio::select! {
                () = connection.wait_until_open() => panic!("no server listens there"),
                _ = pause => {}
            }
            // On a busy machine, the next attempt may be due by now.
            let is_waiting = matches!(&connection.state, RedisConnectionState::Opening(task) if !task.is_finished());
            assert!(is_waiting || started_at.elapsed() >= AFTER_PANIC);
        });
    }
}
