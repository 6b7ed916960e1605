//! What a caller holds while its call is in a batch, and what the batch answers through.

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

/// Where the answers of one batch are put and its callers wait.
#[derive(Debug)]
pub(super) struct BatchReplies<A>(Mutex<ReplyState<A>>);

#[derive(Debug)]
enum ReplyState<A> {
    /// Nobody has answered yet. A caller's waker is at the place of its first call.
    Awaited(Vec<Option<Waker>>),
    Ready(Vec<Option<A>>),
    Failed(Error),
}

impl<A> BatchReplies<A> {
    /// With room for so many callers.
    pub(super) fn new(callers: usize) -> Self {
        Self(Mutex::new(ReplyState::Awaited(Vec::with_capacity(callers))))
    }

    pub(super) fn send(&self, answers: Vec<A>) {
        self.settle(ReplyState::Ready(answers.into_iter().map(Some).collect()));
    }

    pub(super) fn fail(&self, error: Error) {
        self.settle(ReplyState::Failed(error));
    }

    fn settle(&self, answers: ReplyState<A>) {
        let before = std::mem::replace(&mut *self.0.lock(), answers);
        // Outside the lock: whoever wakes up looks at the replies at once.
        if let ReplyState::Awaited(wakers) = before {
            WakeAll(wakers.into_iter()).wake();
        }
    }
}

/// Wakes everybody, also those behind a waker that panics.
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

/// A caller's place in a batch.
#[derive(Debug)]
pub(super) struct PendingCall<A> {
    pub(super) replies: Arc<BatchReplies<A>>,
    pub(super) places: Range<usize>,
}

impl<A> PendingCall<A> {
    /// Waits for the batch to be answered, and takes what is in this pending's places.
    pub(super) async fn wait<T>(self, take: impl Fn(&mut [Option<A>]) -> Option<T>) -> Result<T> {
        poll_fn(|cx| match &mut *self.replies.0.lock() {
            ReplyState::Awaited(wakers) => {
                wait_at(wakers, self.places.start, cx.waker());
                Poll::Pending
            }
            ReplyState::Ready(answers) => {
                let mine = answers.get_mut(self.places.clone()).and_then(&take);
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
    // The last to poll is the one that waits: a call may move from one task to another.
    match &mut wakers[place] {
        Some(present) => present.clone_from(waker),
        empty => *empty = Some(waker.clone()),
    }
}

/// What the callers of a batch are told that nobody answered.
pub(super) fn unacknowledged() -> Error {
    Error::new(ErrorKind::Unavailable, "the worker gave up on a batch; its calls may have happened")
}
