//! What a worker is asked, and what it tells.

use semel_core::steps::{Call, Said};

/// A call on its way to a worker.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) call: Call,
    /// It came back once, since somebody else had locked its record.
    pub(crate) again: bool,
}

/// What becomes of a call.
#[derive(Debug)]
pub(crate) enum Told {
    Said(Said),
    /// Somebody else has locked the record, nothing happened, and here is the call back.
    Locked(Call),
}

impl Asked {
    pub(crate) const fn first(call: Call) -> Self {
        Self { call, again: false }
    }

    pub(crate) const fn again(call: Call) -> Self {
        Self { call, again: true }
    }
}
