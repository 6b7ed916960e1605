//! A copy of a body that passes by, within bounds.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use parking_lot::Mutex;

use super::Pieces;
use crate::budget::Permit;

/// What has passed so far. Clones see the same.
#[derive(Clone, Debug)]
pub(crate) struct Seen(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    pieces: Pieces,
    length: usize,
    limit: usize,
    permit: Permit,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Open,
    Whole,
    TooLarge,
}

impl Seen {
    pub(crate) fn new(limit: usize, permit: Permit) -> Self {
        let end = End::Open;
        Self(Arc::new(Mutex::new(State { pieces: Pieces::new(), length: 0, limit, permit, end })))
    }

    pub(super) fn frame(&self, frame: &Frame<Bytes>) {
        let Some(data) = frame.data_ref() else { return };
        let mut state = self.0.lock();
        if state.end == End::TooLarge || data.is_empty() {
            return;
        }
        state.length += data.len();
        let fits = state.length <= state.limit && state.permit.grow(data.len());
        if fits && state.end == End::Open {
            state.pieces.push_back(data.clone());
        } else {
            state.end = End::TooLarge;
            state.pieces.clear();
            state.permit.give_back();
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
        let mut state = self.0.lock();
        match state.end {
            End::Whole => {
                let mut whole = BytesMut::with_capacity(state.length);
                state.pieces.drain(..).for_each(|piece| whole.extend_from_slice(&piece));
                Ok(whole.freeze())
            }
            End::Open => Err("body-unread"),
            End::TooLarge => Err("body-too-large"),
        }
    }
}
