//! `tokio::sync::Notify` on shuttle, for one waiting task.

use std::{
    future::poll_fn,
    task::{Poll, Waker},
};

use super::Mutex;

#[derive(Debug, Default)]
pub struct Notify(Mutex<NotifyState>);

#[derive(Debug, Default)]
struct NotifyState {
    /// Kept when the future that waits for it is dropped, as in tokio.
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
