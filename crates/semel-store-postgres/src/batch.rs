//! The requests of a batch, grouped by key, and their replies.

use std::ops::Range;

use semel_core::{
    Error, KeyHash, Result,
    steps::{StoreReply, StoreRequest},
};

use crate::{
    request::{PgReply, PgRequest},
    slow_path::decide::ReadRecord,
};

/// A batch in a worker. Requests are sent in the order of their keys; replies are returned in the order in
/// which the requests came.
#[derive(Debug)]
pub(crate) struct RequestBatch {
    requests: Vec<PgRequest>,
    /// Indexes of the requests, sorted by key; requests of one key stay in their order.
    order: Vec<usize>,
    replies: Vec<ReplySlot>,
}

#[derive(Debug)]
enum ReplySlot {
    Missing,
    Ready(Result<StoreReply>),
    /// The request is returned to its caller.
    Locked,
}

/// The requests of one key that have no reply yet.
#[derive(Debug)]
pub(crate) struct KeyGroup {
    /// In [`RequestBatch::order`].
    indexes: Range<usize>,
    pub(crate) read: Option<ReadRecord>,
    /// The record's outcome is too large to be read together with others.
    pub(crate) large: bool,
    /// The record may be locked: a statement with this key met a lock, in this batch or in an earlier one.
    pub(crate) maybe_locked: bool,
}

impl RequestBatch {
    /// The batch, and its groups in the order of their keys.
    pub(crate) fn new(requests: Vec<PgRequest>) -> (Self, Vec<KeyGroup>) {
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_unstable_by_key(|index| (requests[*index].request.key(), *index));
        let mut start = 0;
        let groups = order
            .chunk_by(|one, next| requests[*one].request.key() == requests[*next].request.key())
            .map(|chunk| {
                let indexes = start..start + chunk.len();
                start = indexes.end;
                let maybe_locked = chunk.iter().any(|index| requests[*index].was_locked);
                KeyGroup { indexes, read: None, large: false, maybe_locked }
            })
            .collect();
        let replies = requests.iter().map(|_| ReplySlot::Missing).collect();
        (Self { requests, order, replies }, groups)
    }

    pub(crate) fn key(&self, group: &KeyGroup) -> &KeyHash {
        self.first_request(group).key()
    }

    /// The first request of the group that has no reply.
    pub(crate) fn first_request(&self, group: &KeyGroup) -> &StoreRequest {
        &self.requests[self.order[group.indexes.start]].request
    }

    /// The requests of the group that have no reply.
    pub(crate) fn requests(&self, group: &KeyGroup) -> impl Iterator<Item = &StoreRequest> {
        self.order[group.indexes.clone()].iter().map(|index| &self.requests[*index].request)
    }

    /// Replies to the first requests of a group.
    pub(crate) fn reply(
        &mut self,
        group: &mut KeyGroup,
        replies: impl IntoIterator<Item = StoreReply>,
    ) {
        for reply in replies {
            self.replies[self.order[group.indexes.start]] = ReplySlot::Ready(Ok(reply));
            group.indexes.start += 1;
        }
    }

    /// Replies with an error to every request of the group that has no reply.
    pub(crate) fn fail(&mut self, group: &mut KeyGroup, error: &Error) {
        for index in &self.order[group.indexes.clone()] {
            self.replies[*index] = ReplySlot::Ready(Err(error.clone()));
        }
        group.indexes.start = group.indexes.end;
    }

    /// Returns every request of the group that has no reply, because another transaction has locked the record.
    pub(crate) fn return_locked(&mut self, group: &mut KeyGroup) {
        for index in &self.order[group.indexes.clone()] {
            self.replies[*index] = ReplySlot::Locked;
        }
        group.indexes.start = group.indexes.end;
    }

    /// All replies; `missing` where there is none.
    pub(crate) fn into_replies(self, missing: &Error) -> Vec<Result<PgReply>> {
        let reply = |(request, slot): (PgRequest, ReplySlot)| match slot {
            ReplySlot::Missing => Err(missing.clone()),
            ReplySlot::Ready(reply) => reply.map(PgReply::Done),
            ReplySlot::Locked => Ok(PgReply::Locked(request.request)),
        };
        self.requests.into_iter().zip(self.replies).map(reply).collect()
    }
}

impl KeyGroup {
    pub(crate) fn is_done(&self) -> bool {
        self.indexes.is_empty()
    }
}
