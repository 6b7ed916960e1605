//! `tokio::sync::watch` on shuttle: all receivers see the last value.

use std::{
    future::poll_fn,
    mem,
    ops::Deref,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::{
    Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
    lock::MutexGuard,
};

#[derive(Debug)]
pub struct Sender<T>(Arc<WatchShared<T>>);

#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<WatchShared<T>>,
    seen_version: u64,
}

#[derive(Debug)]
pub struct Ref<'a, T>(MutexGuard<'a, WatchCell<T>>);

#[derive(Debug)]
struct WatchShared<T> {
    cell: Mutex<WatchCell<T>>,
    /// Outside the lock, as in tokio: counting and sending do not exclude each other.
    receivers: AtomicUsize,
}

#[derive(Debug)]
struct WatchCell<T> {
    value: T,
    version: u64,
    closed: bool,
    wakers: Vec<Waker>,
}

/// The sender was dropped.
#[derive(Debug)]
pub struct RecvError;

impl<T> Sender<T> {
    pub fn new(value: T) -> Self {
        let cell = WatchCell { value, version: 0, closed: false, wakers: Vec::new() };
        Self(Arc::new(WatchShared { cell: Mutex::new(cell), receivers: AtomicUsize::new(0) }))
    }

    pub fn subscribe(&self) -> Receiver<T> {
        self.0.receivers.fetch_add(1, SeqCst);
        let seen_version = self.0.cell.lock().version;
        Receiver { shared: self.0.clone(), seen_version }
    }

    pub fn receiver_count(&self) -> usize {
        self.0.receivers.load(SeqCst)
    }

    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.0.cell.lock())
    }

    pub fn send_replace(&self, value: T) {
        self.send_if_modified(|current| {
            *current = value;
            true
        });
    }

    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) {
        let mut cell = self.0.cell.lock();
        if !modify(&mut cell.value) {
            return;
        }
        cell.version += 1;
        let wakers = mem::take(&mut cell.wakers);
        drop(cell);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut cell = self.0.cell.lock();
        cell.closed = true;
        let wakers = mem::take(&mut cell.wakers);
        drop(cell);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<T> Receiver<T> {
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let cell = self.shared.cell.lock();
        self.seen_version = cell.version;
        Ref(cell)
    }

    pub async fn changed(&mut self) -> Result<(), RecvError> {
        poll_fn(|cx| self.poll_changed(cx)).await
    }

    pub async fn wait_for(&mut self, wanted: impl Fn(&T) -> bool) -> Result<(), RecvError> {
        while !wanted(&self.borrow_and_update()) {
            self.changed().await?;
        }
        Ok(())
    }

    fn poll_changed(&mut self, cx: &Context<'_>) -> Poll<Result<(), RecvError>> {
        let mut cell = self.shared.cell.lock();
        if cell.version != self.seen_version {
            self.seen_version = cell.version;
            return Poll::Ready(Ok(()));
        }
        if cell.closed {
            return Poll::Ready(Err(RecvError));
        }
        if !cell.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            cell.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, SeqCst);
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}
