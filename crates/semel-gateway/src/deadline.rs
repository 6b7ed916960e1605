//! A deadline that is moved far more often than it is reached.

use std::{pin::Pin, task::Context};

use tokio::time::{Instant, Sleep, sleep_until};

/// One timer for all waits of a connection. Moving the deadline costs nothing until the timer fires.
#[derive(Debug, Default)]
pub(super) struct MovingDeadline {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl MovingDeadline {
    /// True once `due` has passed; until then the task is woken at `due`.
    pub(super) fn has_passed(&mut self, due: Instant, cx: &mut Context<'_>) -> bool {
        // The timer alone is not enough: a task that is always ready may have no budget left to poll it.
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
