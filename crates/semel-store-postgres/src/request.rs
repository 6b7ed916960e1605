//! What a worker is asked, and what it tells.

use semel_core::steps::{StoreReply, StoreRequest};

/// A call on its way to a worker.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) call: StoreRequest,
    /// It came back once, since somebody else had locked its record.
    pub(crate) again: bool,
}

/// What becomes of a call.
#[derive(Debug)]
pub(crate) enum Told {
    StoreReply(StoreReply),
    /// Somebody else has locked the record, nothing happened, and here is the call back.
    Locked(StoreRequest),
}

impl Asked {
    pub(crate) const fn first(call: StoreRequest) -> Self {
        Self { call, again: false }
    }

    pub(crate) const fn again(call: StoreRequest) -> Self {
        Self { call, again: true }
    }
}
