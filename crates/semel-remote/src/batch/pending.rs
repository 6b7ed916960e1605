//! What a caller holds while its call is in a batch, and where the batch puts its replies.

use std::{
    future::poll_fn,
    ops::Range,
    sync::Arc,
    task::{Poll, Waker},
};

use semel_core::{
    Error, ErrorKind, Result,
    sync::{Mutex, bug},
};

/// The replies of one batch, and the callers that wait for them.
#[derive(Debug)]
pub(super) struct BatchReplies<A>(Mutex<ReplyState<A>>);

#[derive(Debug)]
enum ReplyState<A> {
    /// There is no reply yet. A caller's waker is at the position of its first call.
    Awaited(Vec<Option<Waker>>),
    Ready(Vec<Option<A>>),
    Failed(Error),
}

impl<A> BatchReplies<A> {
    /// With capacity for this many callers.
    pub(super) fn new(callers: usize) -> Self {
        Self(Mutex::new(ReplyState::Awaited(Vec::with_capacity(callers))))
    }

    pub(super) fn send(&self, replies: Vec<A>) {
        self.settle(ReplyState::Ready(replies.into_iter().map(Some).collect()));
    }

    pub(super) fn fail(&self, error: Error) {
        self.settle(ReplyState::Failed(error));
    }

    fn settle(&self, state: ReplyState<A>) {
        let before = std::mem::replace(&mut *self.0.lock(), state);
        // Outside the lock: a woken caller takes it at once.
        if let ReplyState::Awaited(wakers) = before {
            WakeAll(wakers.into_iter()).wake();
        }
    }
}

/// Wakes every caller, also those after a waker that panics.
struct WakeAll(std::vec::IntoIter<Option<Waker>>);

impl WakeAll {
    fn wake(&mut self) {
        self.0.by_ref().flatten().for_each(Waker::wake);
    }
}

impl Drop for WakeAll {
    fn drop(&mut self) {
        self.wake();
    }
}

/// A caller's calls in a batch, by their positions.
#[derive(Debug)]
pub(super) struct PendingCall<A> {
    pub(super) replies: Arc<BatchReplies<A>>,
    pub(super) positions: Range<usize>,
}

impl<A> PendingCall<A> {
    /// Waits for the replies of the batch, and takes those of this caller.
    pub(super) async fn wait<T>(self, take: impl Fn(&mut [Option<A>]) -> Option<T>) -> Result<T> {
        poll_fn(|cx| match &mut *self.replies.0.lock() {
            ReplyState::Awaited(wakers) => {
                wait_at(wakers, self.positions.start, cx.waker());
                Poll::Pending
            }
            ReplyState::Ready(replies) => {
                let mine = replies.get_mut(self.positions.clone()).and_then(&take);
                Poll::Ready(mine.ok_or_else(unacknowledged))
            }
            ReplyState::Failed(error) => Poll::Ready(Err(error.clone())),
        })
        .await
    }
}

fn wait_at(wakers: &mut Vec<Option<Waker>>, place: usize, waker: &Waker) {
    if wakers.len() <= place {
        wakers.resize(place + 1, None);
    }
    bug!(WakerNotUpdated => {
        if wakers[place].is_some() {
            return;
        }
    });
    // The waker of the last poll counts: a call may move from one task to another.
    match &mut wakers[place] {
        Some(present) => present.clone_from(waker),
        empty => *empty = Some(waker.clone()),
    }
}

/// The error for calls whose worker sent no reply.
pub(super) fn unacknowledged() -> Error {
    Error::new(ErrorKind::Unavailable, "the worker gave up on a batch; its calls may have happened")
}
