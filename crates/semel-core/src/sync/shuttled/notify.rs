//! `tokio::sync::Notify`, for one task that waits.

use std::{
    future::poll_fn,
    task::{Poll, Waker},
};

use super::Mutex;

#[derive(Debug, Default)]
pub struct Notify(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Stays when the future it was meant for is dropped, as in tokio.
    permit: bool,
    waker: Option<Waker>,
}

impl Notify {
    pub fn notify_one(&self) {
        let mut state = self.0.lock();
        state.permit = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    pub async fn notified(&self) {
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if std::mem::take(&mut state.permit) {
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
