//! A time limit that is moved far more often than it is reached.

use std::{pin::Pin, task::Context};

use tokio::time::{Instant, Sleep, sleep_until};

/// One timer for as many waits as a connection has. Moving the end of a wait costs nothing until the
/// timer fires.
#[derive(Debug, Default)]
pub(super) struct MovingDeadline {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl MovingDeadline {
    /// True once `due` has passed; until then the task is woken in time.
    pub(super) fn is_over(&mut self, due: Instant, cx: &mut Context<'_>) -> bool {
        // Not left to the timer alone: a task that never rests may have no budget left to poll it with.
        if Instant::now() >= due {
            return true;
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if sleep.deadline() > due {
            sleep.as_mut().reset(due);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            sleep.as_mut().reset(due);
        }
        false
    }
}
