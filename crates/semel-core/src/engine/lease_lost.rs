//! The signal that a lease is lost: tells the work, and takes its flight off the map. Lighter than a
//! cancellation token: every run has one, and almost no run ever looks at it.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::Arc,
    task::{Poll, Waker},
};

use super::singleflight::Listing;
use crate::{
    StoreDown,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

/// Fires once. Clones fire together.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost(Arc<State>);

#[derive(Debug, Default)]
struct State {
    flight: Option<(Listing, StoreDown)>,
    fired: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: BTreeMap<u64, Waker>,
    last: u64,
}

/// One wait. It leaves nothing behind when it is dropped.
struct Wait<'a> {
    lost: &'a Lost,
    id: Option<u64>,
}

impl Lost {
    /// The signal of the lease that this flight runs under.
    pub(super) fn of(flight: Listing, store_down: StoreDown) -> Self {
        Self(Arc::new(State { flight: Some((flight, store_down)), ..State::default() }))
    }

    /// The store has taken the lease away.
    pub(super) fn fire(&self) {
        // Off the map first: whoever acts on the signal and asks again is not sent to this flight.
        if let Some((flight, _)) = &self.0.flight {
            flight.take_off();
        }
        self.tell();
    }

    /// The store has not answered for too long. Where work runs without it, the next request would run
    /// beside this one as long as it is down: that flight stays until the store has spoken.
    pub(super) fn fire_unheard(&self) {
        match &self.0.flight {
            Some((_, StoreDown::RunUnprotected)) => self.tell(),
            Some((_, StoreDown::Refuse)) | None => self.fire(),
        }
    }

    fn tell(&self) {
        self.0.fired.store(true, SeqCst);
        let wakers = std::mem::take(&mut self.0.waiting.lock().wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    pub(super) fn has_fired(&self) -> bool {
        self.0.fired.load(SeqCst)
    }

    pub(super) async fn fired(&self) {
        let mut wait = Wait { lost: self, id: None };
        poll_fn(|cx| {
            let mut waiting = self.0.waiting.lock();
            // Looked at under the lock: it fires before it takes the wakers.
            if self.has_fired() {
                return Poll::Ready(());
            }
            let next = waiting.last + 1;
            waiting.last = next;
            let id = *wait.id.get_or_insert(next);
            waiting.wakers.insert(id, cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.lost.0.waiting.lock().wakers.remove(&id);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_wait_that_is_dropped_leaves_nothing_behind() {
        let lost = Lost::default();
        for _ in 0..3 {
            assert!(lost.fired().now_or_never().is_none());
        }
        assert!(lost.0.waiting.lock().wakers.is_empty());
        lost.fire();
        assert!(lost.fired().now_or_never().is_some());
    }
}
