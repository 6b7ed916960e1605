//! A worker's connection, which comes back by itself.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use semel_core::{Error, Result, background};
use tokio::{
    sync::Notify,
    task::{JoinError, JoinHandle},
    time::{sleep, timeout},
};

use crate::{
    connection::Link,
    error::{is_timeout, unavailable},
    settings::Plan,
};

/// How long calls wait for a connection to a server that did not answer the last time.
const GRACE: Duration = Duration::from_millis(100);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The least time between the first two attempts, however many calls wait for a connection. It doubles after each, up
/// to the longest.
const FIRST_LEAST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_LEAST_PAUSE: Duration = Duration::from_millis(250);
/// How long a server may take to answer a check.
const CHECK: Duration = Duration::from_secs(1);
/// After a panic: where the runtime cannot have connections, it panics each time.
const AFTER_PANIC: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });

/// A worker's connection.
#[derive(Debug)]
pub(crate) struct Line {
    plan: Arc<Plan>,
    state: State,
    opening: Arc<Opening>,
}

/// What is known about a connection that is being opened.
#[derive(Debug, Default)]
struct Opening {
    failure: Mutex<Failure>,
    /// An attempt failed.
    failed: Notify,
    /// A call waits: the next attempt is made at once.
    wanted: Notify,
}

#[derive(Clone, Debug, Default)]
struct Failure {
    /// Why there is no connection.
    why: Option<Error>,
    /// The server did not answer, so an attempt takes long. Otherwise it shows within a moment whether the server can
    /// be reached.
    is_slow: bool,
}

impl Opening {
    /// Whatever the connection was lost for, or does not open for, a call that met it may be tried again.
    fn note(&self, error: &Error) {
        let is_slow = is_timeout(error);
        *self.failure.lock() = Failure { why: Some(unavailable(error.to_string())), is_slow };
    }

    fn why(&self) -> Error {
        self.failure.lock().why.clone().unwrap_or_else(not_connected)
    }
}

#[derive(Debug)]
enum State {
    Up(Link),
    Opening(JoinHandle<Link>),
}

impl Line {
    pub(crate) async fn open(plan: Arc<Plan>) -> Result<Self> {
        let link = plan.open().await?;
        Ok(Self { plan, state: State::Up(link), opening: Arc::default() })
    }

    /// A connection that is opened by itself.
    pub(crate) fn begin(plan: Arc<Plan>) -> Self {
        let opening = Arc::<Opening>::default();
        let task = tokio::spawn(reopened(plan.clone(), opening.clone()));
        Self { plan, state: State::Opening(task), opening }
    }

    /// The connection, or why none can be opened. A server that can be reached is not taken for one that is away
    /// because the last connection to it is lost: the caller waits until an attempt has succeeded or failed.
    pub(crate) async fn up(&mut self) -> Result<&mut Link> {
        if let State::Opening(task) = &mut self.state {
            let patience = match self.opening.failure.lock().is_slow {
                true => GRACE,
                false => self.plan.call_timeout,
            };
            let failed = self.opening.failed.notified();
            self.opening.wanted.notify_one();
            let opened = async {
                tokio::select! {
                    biased;
                    opened = task => Some(opened),
                    () = failed => None,
                }
            };
            match timeout(patience, opened).await {
                Ok(Some(Ok(link))) => self.state = State::Up(link),
                Ok(Some(Err(error))) => self.not_opened(&error),
                Ok(None) | Err(_) => {}
            }
        }
        match &mut self.state {
            State::Up(link) => Ok(link),
            State::Opening(_) => Err(self.opening.why()),
        }
    }

    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Waits until there is a connection. Nothing is lost when the future is dropped.
    pub(crate) async fn opened(&mut self) {
        loop {
            match &mut self.state {
                State::Up(_) => return,
                State::Opening(opening) => match opening.await {
                    Ok(link) => self.state = State::Up(link),
                    Err(error) => self.not_opened(&error),
                },
            }
        }
    }

    /// The task that opens was lost. It is begun anew, but not at once where it panics: it may again.
    fn not_opened(&mut self, error: &JoinError) {
        if !error.is_panic() {
            return self.reopen();
        }
        tracing::error!("redis: opening a connection panicked; it is tried again later");
        *self.opening.failure.lock() = Failure { why: Some(panicked()), is_slow: true };
        let (plan, state) = (self.plan.clone(), self.opening.clone());
        // Not here, where there may be no timers either.
        let pause = background::handle().spawn(async { sleep(AFTER_PANIC).await });
        self.state = State::Opening(tokio::spawn(async move {
            let _ = pause.await;
            reopened(plan, state).await
        }));
    }

    /// Drops the connection, since nothing from it can be trusted, and opens another. The store's other connections
    /// are checked: whatever happened to this one may have happened to them.
    pub(crate) fn lost(&mut self, why: &Error) {
        self.replace(why);
        self.plan.check.send_replace(());
    }

    /// Checks the connection, and replaces it if the server does not answer on it.
    pub(crate) async fn check(&mut self) {
        if let State::Up(link) = &mut self.state
            && let Err(why) = link.check(self.plan.call_timeout.min(CHECK)).await
        {
            self.replace(&why);
        }
    }

    fn replace(&mut self, why: &Error) {
        tracing::warn!(%why, "redis: connection dropped");
        self.opening.note(why);
        self.reopen();
    }

    fn reopen(&mut self) {
        let task = tokio::spawn(reopened(self.plan.clone(), self.opening.clone()));
        self.state = State::Opening(task);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let State::Opening(opening) = &self.state {
            opening.abort();
        }
    }
}

async fn reopened(plan: Arc<Plan>, state: Arc<Opening>) -> Link {
    let (mut least, mut pause) = (FIRST_LEAST_PAUSE, FIRST_PAUSE);
    loop {
        match plan.open().await {
            Ok(link) => {
                tracing::info!("redis: connected");
                return link;
            }
            Err(error) => state.note(&error),
        }
        state.failed.notify_waiters();
        sleep(least.mul_f64(rand::random_range(0.5..1.0))).await;
        least = (least * 2).min(LONGEST_LEAST_PAUSE);
        let rest = sleep(pause.mul_f64(rand::random_range(0.5..1.0)));
        tokio::select! {
            () = rest => pause = (pause * 2).min(LONGEST_PAUSE),
            () = state.wanted.notified() => {}
        }
    }
}

fn panicked() -> Error {
    unavailable("redis: opening a connection panicked, see the log; it is tried again every 30 s")
}

fn not_connected() -> Error {
    unavailable("redis: there is no connection; one is being opened")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::{RedisStore, meta::Role};

    fn line(url: &str, opening: JoinHandle<Link>) -> Line {
        let plan = RedisStore::builder(url).plan(Role::Store).expect("the settings are right");
        Line { plan: Arc::new(plan), state: State::Opening(opening), opening: Arc::default() }
    }

    #[tokio::test]
    async fn a_connection_is_opened_again_after_a_panic() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("redis://{}", server.local_addr().expect("its address"));
        let mut line = line(&url, tokio::spawn(async { panic!("made up") }));
        let error = line.up().await.expect_err("it panicked");
        assert!(error.to_string().contains("panicked"), "{error}");
        let accepted = tokio::task::spawn_blocking(move || server.accept());
        let accepted = timeout(AFTER_PANIC * 10, accepted).await.expect("it is opened again");
        accepted.expect("somebody waits").expect("a connection");
    }

    /// There is neither a timer nor a socket here.
    #[test]
    fn who_cannot_have_a_connection_does_not_try_all_the_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("one starts");
        runtime.block_on(async {
            let opening = tokio::spawn(async { panic!("made up") });
            let mut line = line("redis://127.0.0.1:1", opening);
            let pause = background::handle().spawn(async { sleep(AFTER_PANIC / 2).await });
            tokio::select! {
                () = line.opened() => panic!("nothing is there"),
                _ = pause => {}
            }
            assert!(matches!(&line.state, State::Opening(opening) if !opening.is_finished()));
        });
    }
}
