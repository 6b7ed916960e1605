//! A time limit for many futures with one timer. Almost every body arrives at once, and a timer for each would
//! cost more than reading it.

use std::{
    collections::HashMap,
    pin::pin,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use futures_util::future::poll_fn;
use parking_lot::Mutex;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

/// How late a limit may be noticed.
const TICK: Duration = Duration::from_millis(100);

/// Pending futures and a ticker task that wakes them at their time limit. The task runs only while futures are
/// pending.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoarseTimeout(Arc<Mutex<TimeoutState>>);

#[derive(Debug, Default)]
struct TimeoutState {
    waiting: HashMap<u64, PendingTimeout>,
    last: u64,
    ticker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct PendingTimeout {
    waker: Waker,
    until: Instant,
}

/// One pending future. Dropping it removes the future from the state.
struct Registration<'a> {
    timeout: &'a CoarseTimeout,
    id: u64,
    until: Instant,
}

impl CoarseTimeout {
    /// Awaits `future` for `limit` at most.
    pub(crate) async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut registration: Option<Registration<'_>> = None;
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            match &registration {
                None => registration = Some(self.wait(limit, cx.waker())),
                Some(registration) if Instant::now() >= registration.until => {
                    return Poll::Ready(None);
                }
                Some(registration) => registration.wake(cx.waker()),
            }
            Poll::Pending
        })
        .await
    }

    fn wait(&self, limit: Duration, waker: &Waker) -> Registration<'_> {
        let until = Instant::now() + limit;
        let mut state = self.0.lock();
        state.last += 1;
        let id = state.last;
        state.waiting.insert(id, PendingTimeout { waker: waker.clone(), until });
        // A ticker that is finished ended with its runtime.
        if state.ticker.as_ref().is_none_or(JoinHandle::is_finished) {
            state.ticker = Some(tokio::spawn(tick(self.clone())));
        }
        Registration { timeout: self, id, until }
    }

    /// Wakes the futures whose limit has passed. If no future is pending, removes the ticker and returns false.
    fn wake_due(&self, now: Instant) -> bool {
        let mut state = self.0.lock();
        let due = state.waiting.values().filter(|it| it.until <= now);
        due.for_each(|it| it.waker.wake_by_ref());
        if state.waiting.is_empty() {
            state.ticker = None;
        }
        state.ticker.is_some()
    }
}

async fn tick(timeout: CoarseTimeout) {
    loop {
        sleep(TICK).await;
        if !timeout.wake_due(Instant::now()) {
            return;
        }
    }
}

impl Registration<'_> {
    fn wake(&self, waker: &Waker) {
        if let Some(waiting) = self.timeout.0.lock().waiting.get_mut(&self.id) {
            waiting.waker.clone_from(waker);
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.timeout.0.lock().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_future_past_its_limit_ends_and_others_complete() {
        let timeout = CoarseTimeout::default();
        let limit = Duration::from_secs(30);
        assert_eq!(timeout.within(limit, ready(1)).await, Some(1));
        let began = Instant::now();
        let (slow, late) = tokio::join!(
            timeout.within(limit, async { sleep(limit / 2).await }),
            timeout.within(limit, pending::<()>()),
        );
        assert_eq!((slow, late), (Some(()), None));
        let took = began.elapsed();
        assert!(took >= limit && took <= limit + 2 * TICK, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_ticker_runs_only_while_a_future_is_pending() {
        let timeout = CoarseTimeout::default();
        let limit = Duration::from_secs(1);
        for _ in 0..2 {
            assert_eq!(timeout.within(limit, pending::<()>()).await, None);
            while timeout.0.lock().ticker.is_some() {
                sleep(TICK).await;
            }
            assert!(timeout.0.lock().waiting.is_empty());
        }
        assert_eq!(timeout.within(limit, yield_now()).await, Some(()));
        assert!(timeout.0.lock().waiting.is_empty());
    }
}
