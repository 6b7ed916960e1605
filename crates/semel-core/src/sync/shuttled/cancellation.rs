//! `tokio_util::sync::CancellationToken`, without children.

use std::{
    future::poll_fn,
    mem,
    sync::Arc,
    task::{Poll, Waker},
};

use super::Mutex;

#[derive(Clone, Debug, Default)]
pub(crate) struct CancellationToken(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    cancelled: bool,
    wakers: Vec<Waker>,
}

impl CancellationToken {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn cancel(&self) {
        let mut state = self.0.lock();
        state.cancelled = true;
        let wakers = mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.lock().cancelled
    }

    pub(crate) async fn cancelled(&self) {
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.cancelled {
                return Poll::Ready(());
            }
            state.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
