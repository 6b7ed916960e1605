//! A worker's connection, which comes back by itself.

use std::{future::pending, sync::Arc, time::Duration};

use parking_lot::Mutex;
use semel_core::{Error, Result};
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
    /// The runtime cannot have connections.
    Never,
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
            State::Opening(_) | State::Never => {
                Err(self.why.lock().clone().unwrap_or_else(not_connected))
            }
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
                State::Never => pending().await,
                State::Opening(opening) => match opening.await {
                    Ok(link) => self.state = State::Up(link),
                    Err(error) => self.not_opened(&error),
                },
            }
        }
    }

    /// The task that opens was lost. It is begun anew, but not where it panics: it would again.
    fn not_opened(&mut self, error: &JoinError) {
        match error.is_panic() {
            true => self.state = State::Never,
            false => self.reopen(),
        }
    }

    /// Drops the connection, since nothing from it can be trusted, and opens another.
    pub(crate) fn lost(&mut self, why: &Error) {
        tracing::warn!(%why, "redis: connection dropped");
        *self.why.lock() = Some(why.clone());
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

/// Whatever keeps the connection from opening, a call that met it may be tried again.
fn not_open(error: &Error) -> Error {
    unavailable(error.to_string())
}

fn not_connected() -> Error {
    unavailable("redis: there is no connection; one is being opened")
}
