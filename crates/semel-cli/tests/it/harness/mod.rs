//! What every test here begins with: the real binary, an upstream that tells what it saw, and a client that
//! sends exactly the bytes it is given.

mod answer;
mod ask;
mod command;
mod gateway;
mod process;
mod reading;
mod reply;
mod seen;
mod upstream;
mod wire;

use std::time::Duration;

use tokio::time::{Instant, sleep};

pub(crate) use self::{
    answer::Answer,
    ask::{Ask, HOST},
    command::{Ended, Running, command, nobody, run, run_command},
    gateway::{Gateway, Setup},
    reply::Reply,
    seen::Seen,
    upstream::{Reserved, Upstream, accept},
    wire::{Wire, ask},
};

/// Nothing here takes so long on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `done`.
pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let started_at = Instant::now();
    while !done().await {
        assert!(started_at.elapsed() < PATIENCE, "{what}: it did not come to that");
        sleep(Duration::from_millis(5)).await;
    }
}
