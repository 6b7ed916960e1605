//! A worker's connection, which comes back by itself.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use semel_core::{Error, Result, background};
use tokio::{
    task::{JoinError, JoinHandle},
    time::{sleep, timeout},
};

use crate::{
    error::unavailable,
    link::{Link, Plan},
};

/// Calls wait this long for a connection that is being opened; then they fail until it is there.
const GRACE: Duration = Duration::from_millis(100);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// After a panic: where the runtime cannot have connections, it panics each time.
const AFTER_PANIC: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });

/// A worker's connection.
#[derive(Debug)]
pub(crate) struct Line {
    plan: Arc<Plan>,
    state: State,
    /// Why there is no connection.
    why: Arc<Mutex<Option<Error>>>,
}

#[derive(Debug)]
enum State {
    Up(Link),
    Opening(JoinHandle<Link>),
}

impl Line {
    pub(crate) async fn open(plan: Arc<Plan>) -> Result<Self> {
        let link = plan.open().await?;
        Ok(Self { plan, state: State::Up(link), why: Arc::default() })
    }

    /// A connection that is opened by itself.
    pub(crate) fn begin(plan: Arc<Plan>) -> Self {
        let why = Arc::default();
        let opening = tokio::spawn(reopened(plan.clone(), Arc::clone(&why)));
        Self { plan, state: State::Opening(opening), why }
    }

    /// The connection, if there is one.
    pub(crate) async fn up(&mut self) -> Result<&mut Link> {
        if let State::Opening(opening) = &mut self.state {
            match timeout(GRACE, opening).await {
                Ok(Ok(link)) => self.state = State::Up(link),
                Ok(Err(error)) => self.not_opened(&error),
                Err(_) => {}
            }
        }
        match &mut self.state {
            State::Up(link) => Ok(link),
            State::Opening(_) => Err(self.why.lock().clone().unwrap_or_else(not_connected)),
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
        *self.why.lock() = Some(panicked());
        let (plan, why) = (self.plan.clone(), self.why.clone());
        // Not here, where there may be no timers either.
        let pause = background().spawn(async { sleep(AFTER_PANIC).await });
        self.state = State::Opening(tokio::spawn(async move {
            let _ = pause.await;
            reopened(plan, why).await
        }));
    }

    /// Drops the connection, since nothing from it can be trusted, and opens another.
    pub(crate) fn lost(&mut self, why: &Error) {
        tracing::warn!(%why, "redis: connection dropped");
        *self.why.lock() = Some(not_open(why));
        self.reopen();
    }

    fn reopen(&mut self) {
        let (plan, why) = (self.plan.clone(), self.why.clone());
        self.state = State::Opening(tokio::spawn(reopened(plan, why)));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let State::Opening(opening) = &self.state {
            opening.abort();
        }
    }
}

async fn reopened(plan: Arc<Plan>, why: Arc<Mutex<Option<Error>>>) -> Link {
    let mut pause = FIRST_PAUSE;
    loop {
        match plan.open().await {
            Ok(link) => {
                tracing::info!("redis: connected");
                return link;
            }
            Err(error) => *why.lock() = Some(not_open(&error)),
        }
        sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whatever the connection was lost for, or does not open for, a call that met it may be tried again.
fn not_open(error: &Error) -> Error {
    unavailable(error.to_string())
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
    use crate::{RedisStore, agree::Role};

    fn line(url: &str, opening: JoinHandle<Link>) -> Line {
        let plan = RedisStore::builder(url).plan(Role::Store).expect("the settings are right");
        Line { plan: Arc::new(plan), state: State::Opening(opening), why: Arc::default() }
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
            let pause = background().spawn(async { sleep(AFTER_PANIC / 2).await });
            tokio::select! {
                () = line.opened() => panic!("nothing is there"),
                _ = pause => {}
            }
            assert!(matches!(&line.state, State::Opening(opening) if !opening.is_finished()));
        });
    }
}
