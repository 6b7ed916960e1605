//! A time limit that is moved far more often than it is reached.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio::time::{Instant, Sleep, sleep_until};

/// One timer for as many waits as a connection has. Moving the end of a wait costs nothing until the
/// timer fires.
#[derive(Debug, Default)]
pub(super) struct Limit {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Limit {
    /// True once `due` has passed; until then the task is woken in time.
    pub(super) fn is_over(&mut self, due: Instant, cx: &mut Context<'_>) -> bool {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if sleep.deadline() > due {
            sleep.as_mut().reset(due);
        }
        loop {
            match sleep.as_mut().poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(()) if Instant::now() >= due => return true,
                Poll::Ready(()) => sleep.as_mut().reset(due),
            }
        }
    }
}
