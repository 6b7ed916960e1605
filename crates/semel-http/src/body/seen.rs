//! A copy of a body that passes by, within bounds.

use std::sync::Arc;

use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;

use super::buffer::Buffer;
use crate::budget::Permit;

/// What has passed so far. Clones see the same.
#[derive(Clone, Debug)]
pub(crate) struct Seen(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    buffer: Buffer,
    limit: usize,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Open,
    Whole,
    TooLarge,
    NoRoom,
}

impl Seen {
    pub(crate) fn new(limit: usize, permit: Permit) -> Self {
        let buffer = Buffer::new(permit);
        Self(Arc::new(Mutex::new(State { buffer, limit, end: End::Open })))
    }

    pub(super) fn frame(&self, frame: &Frame<Bytes>) {
        let Some(data) = frame.data_ref() else { return };
        let State { buffer, limit, end } = &mut *self.0.lock();
        if *end != End::Open {
            return;
        }
        if data.len() > *limit - buffer.len() {
            *end = End::TooLarge;
        } else if !buffer.push(data, *limit) {
            *end = End::NoRoom;
        }
        if *end != End::Open {
            buffer.clear();
        }
    }

    pub(crate) fn end(&self) {
        let mut state = self.0.lock();
        if state.end == End::Open {
            state.end = End::Whole;
        }
    }

    /// The whole body, or why there is none.
    pub(crate) fn take(&self) -> Result<Bytes, &'static str> {
        let state = self.0.lock();
        match state.end {
            End::Whole => Ok(state.buffer.copied()),
            End::Open => Err("body-unread"),
            End::TooLarge => Err("body-too-large"),
            End::NoRoom => Err("overloaded"),
        }
    }
}
