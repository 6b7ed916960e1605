//! `tokio::sync::oneshot`: one value, once.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::Mutex;

#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Mutex<Slot<T>>>);

#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Mutex<Slot<T>>>);

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    sender_is_gone: bool,
    receiver_is_gone: bool,
    waker: Option<Waker>,
}

/// There is no value.
#[derive(Debug)]
pub(crate) struct RecvError;

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Slot { value: None, sender_is_gone: false, receiver_is_gone: false, waker: None };
    let slot = Arc::new(Mutex::new(slot));
    (Sender(slot.clone()), Receiver(slot))
}

impl<T> Sender<T> {
    pub(crate) fn send(self, value: T) -> Result<(), T> {
        let mut slot = self.0.lock();
        if slot.receiver_is_gone {
            return Err(value);
        }
        slot.value = Some(value);
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut slot = self.0.lock();
        slot.sender_is_gone = true;
        let waker = slot.waker.take();
        drop(slot);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Receiver<T> {
    /// Takes no more: a value that comes later goes back to its sender.
    pub(crate) fn close(&mut self) {
        self.0.lock().receiver_is_gone = true;
    }

    pub(crate) fn try_recv(&mut self) -> Result<T, RecvError> {
        self.0.lock().value.take().ok_or(RecvError)
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.0.lock();
        match slot.value.take() {
            Some(value) => Poll::Ready(Ok(value)),
            None if slot.sender_is_gone => Poll::Ready(Err(RecvError)),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.close();
    }
}
