//! The signal that a lease is lost. Lighter than a cancellation token: every run has one, and almost no
//! run ever looks at it.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Poll, Waker},
};

use crate::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};

/// Fires once. Clones fire together.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost(Arc<State>);

#[derive(Debug, Default)]
struct State {
    fired: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Lost {
    pub(super) fn fire(&self) {
        self.0.fired.store(true, SeqCst);
        let waiting = std::mem::take(&mut *self.0.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(super) fn has_fired(&self) -> bool {
        self.0.fired.load(SeqCst)
    }

    pub(super) async fn fired(&self) {
        poll_fn(|cx| {
            let mut waiting = self.0.waiting.lock();
            // Looked at under the lock: it fires before it takes the wakers.
            if self.has_fired() {
                return Poll::Ready(());
            }
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
