//! A copy of a request body that passes through in observe mode, within bounds.

use std::sync::Arc;

use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;

use super::buffer::Buffer;
use crate::budget::Permit;

/// The bytes that have passed so far. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct BodyCopy(Arc<Mutex<BodyCopyState>>);

#[derive(Debug)]
struct BodyCopyState {
    buffer: Buffer,
    limit: usize,
    status: CopyStatus,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum CopyStatus {
    Open,
    Whole,
    TooLarge,
    NoCapacity,
}

impl BodyCopy {
    pub(crate) fn new(limit: usize, permit: Permit) -> Self {
        let buffer = Buffer::new(permit);
        Self(Arc::new(Mutex::new(BodyCopyState { buffer, limit, status: CopyStatus::Open })))
    }

    pub(super) fn frame(&self, frame: &Frame<Bytes>) {
        let Some(data) = frame.data_ref() else { return };
        let BodyCopyState { buffer, limit, status } = &mut *self.0.lock();
        if *status != CopyStatus::Open {
            return;
        }
        if data.len() > *limit - buffer.len() {
            *status = CopyStatus::TooLarge;
        } else if !buffer.push(data, *limit) {
            *status = CopyStatus::NoCapacity;
        }
        if *status != CopyStatus::Open {
            buffer.clear();
        }
    }

    pub(crate) fn end(&self) {
        let mut state = self.0.lock();
        if state.status == CopyStatus::Open {
            state.status = CopyStatus::Whole;
        }
    }

    /// The whole body, or the reason why it is not there.
    pub(crate) fn take(&self) -> Result<Bytes, &'static str> {
        let state = self.0.lock();
        match state.status {
            CopyStatus::Whole => Ok(state.buffer.copied()),
            CopyStatus::Open => Err("body-unread"),
            CopyStatus::TooLarge => Err("body-too-large"),
            CopyStatus::NoCapacity => Err("overloaded"),
        }
    }
}
