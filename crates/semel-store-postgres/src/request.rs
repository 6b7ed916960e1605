//! What the queue carries to a worker, and what the worker sends back.

use semel_core::steps::{StoreReply, StoreRequest};

/// A request on its way to a worker.
#[derive(Debug)]
pub(crate) struct PgRequest {
    pub(crate) request: StoreRequest,
    /// True when a worker returned it before, because another transaction had locked its record.
    pub(crate) was_locked: bool,
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum PgReply {
    Done(StoreReply),
    /// Another transaction has locked the record. Nothing happened, and the request is returned.
    Locked(StoreRequest),
}

impl PgRequest {
    pub(crate) const fn first(request: StoreRequest) -> Self {
        Self { request, was_locked: false }
    }

    pub(crate) const fn again(request: StoreRequest) -> Self {
        Self { request, was_locked: true }
    }
}
