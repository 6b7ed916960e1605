//! Notices that the machine stalled, so that a deadline that ended too early is not blamed on the source.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const TICK: Duration = Duration::from_millis(10);

/// A thread that measures how late it wakes up.
pub(super) struct StallWatch {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
    limit: Duration,
}

impl StallWatch {
    /// Notices stalls that are longer than `limit`.
    pub(super) fn start(limit: Duration) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let until = stopped.clone();
        let measure = move || {
            let mut longest = Duration::ZERO;
            while !until.load(Relaxed) {
                let before = Instant::now();
                thread::sleep(TICK);
                longest = longest.max(before.elapsed().saturating_sub(TICK));
            }
            longest
        };
        Self { stopped, thread: thread::spawn(measure), limit }
    }

    /// The longest stall, if it was over the limit.
    pub(super) fn longest(self) -> Option<Duration> {
        self.stopped.store(true, Relaxed);
        let longest = self.thread.join().unwrap_or_default();
        (longest > self.limit).then_some(longest)
    }
}
