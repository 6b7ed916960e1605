//! The signal that a lease is lost: it wakes the work, and removes the in-flight call from the map. It is lighter
//! than a cancellation token, since every run has one and almost no run ever waits for it.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::Arc,
    task::{Poll, Waker},
};

use super::singleflight::CallEntry;
use crate::{
    StoreDown,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

/// Fires once. Clones fire together.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseLost(Arc<SignalState>);

#[derive(Debug, Default)]
struct SignalState {
    call: Option<(CallEntry, StoreDown)>,
    has_fired: AtomicBool,
    wakers: Mutex<SignalWakers>,
}

#[derive(Debug, Default)]
struct SignalWakers {
    by_id: BTreeMap<u64, Waker>,
    last_id: u64,
}

/// One wait for the signal. Its drop removes its waker.
struct SignalWait<'a> {
    signal: &'a LeaseLost,
    id: Option<u64>,
}

impl LeaseLost {
    /// The signal of the lease under which this call runs.
    pub(super) fn new(call: CallEntry, store_down: StoreDown) -> Self {
        Self(Arc::new(SignalState { call: Some((call, store_down)), ..SignalState::default() }))
    }

    /// The store replied that the lease is lost.
    pub(super) fn fire(&self) {
        // The entry is removed first: a request that the work makes when it sees the signal must not follow this call.
        if let Some((call, _)) = &self.0.call {
            call.remove();
        }
        self.wake();
    }

    /// The store has not replied for too long. Where work runs without the store, the next request would run beside
    /// this one while the store is down, so the call stays in the map until the store has replied.
    pub(super) fn fire_without_reply(&self) {
        match &self.0.call {
            Some((_, StoreDown::RunUnprotected)) => self.wake(),
            Some((_, StoreDown::Refuse)) | None => self.fire(),
        }
    }

    fn wake(&self) {
        self.0.has_fired.store(true, SeqCst);
        let wakers = std::mem::take(&mut self.0.wakers.lock().by_id);
        wakers.into_values().for_each(Waker::wake);
    }

    pub(super) fn has_fired(&self) -> bool {
        self.0.has_fired.load(SeqCst)
    }

    pub(super) async fn fired(&self) {
        let mut wait = SignalWait { signal: self, id: None };
        poll_fn(|cx| {
            let mut wakers = self.0.wakers.lock();
            // Read under the lock: `wake` sets it before it takes the wakers.
            if self.has_fired() {
                return Poll::Ready(());
            }
            let next = wakers.last_id + 1;
            wakers.last_id = next;
            let id = *wait.id.get_or_insert(next);
            wakers.by_id.insert(id, cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for SignalWait<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.signal.0.wakers.lock().by_id.remove(&id);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_dropped_wait_removes_its_waker() {
        let signal = LeaseLost::default();
        for _ in 0..3 {
            assert!(signal.fired().now_or_never().is_none());
        }
        assert!(signal.0.wakers.lock().by_id.is_empty());
        signal.fire();
        assert!(signal.fired().now_or_never().is_some());
    }
}
