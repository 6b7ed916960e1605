//! The fast path: a publish that expects the revision this process assumes, without a read before it.

use bytes::Bytes;
use semel_core::{
    Nonce, OnLostOwner, Record, Result, State,
    steps::{StoreReply, StoreRequest},
};

use crate::{
    bucket_client::Put,
    error::Trouble,
    request::{Deletion, Job},
    sightings::Claimed,
    unacknowledged::Write,
    value::{Encoded, Seen},
};

impl Job<'_> {
    /// What the key most likely is, so that it need not be read first.
    pub(crate) fn assumed(&self) -> Option<Seen> {
        match self.call {
            StoreRequest::Claim(_) => (!self.scarce).then(Seen::default),
            StoreRequest::Complete(request) => {
                let claimed = self.known.take(&request.owner, self.losses)?;
                let Claimed { revision, record, .. } = claimed;
                // A nonce does not name a key.
                (record.key == request.owner.key).then_some(())?;
                Some(Seen { revision, record: Some(record), ..Seen::default() })
            }
            StoreRequest::Renew(_)
            | StoreRequest::Release(_)
            | StoreRequest::Abandon(_)
            | StoreRequest::Resolve(_)
            | StoreRequest::Erase(_)
            | StoreRequest::Forget(_)
            | StoreRequest::Purge(_)
            | StoreRequest::Get(_) => None,
        }
    }

    pub(crate) async fn put(&mut self, write: Box<Write>) -> Result<StoreReply, Trouble> {
        let stored = match self.watch(&write.record) {
            None => {
                let subject = self.link.names.record(&write.record.key);
                self.put_value(subject, Some(write.revision), &write.value).await
            }
            Some(entry) => Box::pin(self.put_watched(entry, &write)).await,
        };
        match stored {
            Ok(revision) => {
                let Write { revision: before, value, said, record, .. } = *write;
                if before == 0 {
                    self.link.room.took(&value.bytes);
                }
                self.known.wrote(record, revision, self.losses);
                Ok(said)
            }
            Err(trouble @ Trouble::Lost(_)) => {
                self.unanswered.push(*write);
                Err(trouble)
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// The index entry is there before the record.
    pub(crate) async fn put_watched(&self, entry: String, write: &Write) -> Result<u64, Trouble> {
        let entered = Encoded { bytes: Bytes::from_static(b"+"), ttl: None };
        self.put_value(entry, None, &entered).await?;
        let subject = self.link.names.record(&write.record.key);
        self.put_value(subject, Some(write.revision), &write.value).await
    }

    pub(crate) fn put_value(
        &self,
        subject: String,
        expected: Option<u64>,
        value: &Encoded,
    ) -> impl Future<Output = Result<u64, Trouble>> + use<> {
        self.link.put(subject, expected, Put::Value(value), self.over)
    }

    /// The index entry that has to be there before the record: of a claim on hold, and of a key that a
    /// claim finds dead. All that becomes Unknown was one of these.
    pub(crate) fn watch(&self, record: &Record) -> Option<String> {
        let held = record.terms.on_lost_owner == OnLostOwner::Hold || record.state == State::Dead;
        (held && self.is_claim()).then(|| self.link.names.watched(&record.key))
    }

    pub(crate) async fn delete(&mut self, revision: u64) -> Result<u64, Trouble> {
        let mark = self.deleted.as_ref().map(|deletion| deletion.mark.clone());
        let mark = mark.unwrap_or_else(|| Bytes::copy_from_slice(Nonce::random().as_bytes()));
        let (subject, gone) = (self.link.names.record(self.call.key()), Put::Gone(mark.clone()));
        let deleted = self.link.put(subject, Some(revision), gone, self.over).await;
        if let Err(Trouble::Lost(_)) = deleted {
            self.deleted = Some(Deletion { revision, mark });
        }
        deleted
    }
}
