//! The fast path: a publish that expects the revision which this process assumes, without reading the key before.

use bytes::Bytes;
use semel_core::{
    Claim, Nonce, OnLostOwner, Record, Result, State,
    steps::{StoreReply, StoreRequest},
};

use crate::{
    bucket_client::BucketWrite,
    error::RequestError,
    request::{Deletion, NatsRequest},
    sightings::OwnClaim,
    unacknowledged::ConditionalWrite,
    value::{Encoded, KeySnapshot},
};

impl NatsRequest<'_> {
    /// What the key most likely is: absent for a claim, and the remembered claim for its completion.
    pub(crate) fn assumed_snapshot(&self) -> Option<KeySnapshot> {
        match self.request {
            StoreRequest::Claim(_) => (!self.is_scarce).then(KeySnapshot::default),
            StoreRequest::Complete(request) => {
                let claim = self.sightings.take(&request.owner, self.lost_connections)?;
                let OwnClaim { revision, record, .. } = claim;
                // Claims are remembered by their nonce, which does not identify the key.
                (record.key == request.owner.key).then_some(())?;
                Some(KeySnapshot { revision, record: Some(record), ..KeySnapshot::default() })
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

    /// Publishes a record that expects a revision.
    pub(crate) async fn put(
        &mut self,
        write: Box<ConditionalWrite>,
    ) -> Result<StoreReply, RequestError> {
        let stored = match self.needed_index_entry(&write.record) {
            None => {
                let subject = self.bucket.names.record(&write.record.key);
                self.put_value(subject, Some(write.revision), &write.value).await
            }
            Some(entry) => Box::pin(self.put_with_index_entry(entry, &write)).await,
        };
        match stored {
            Ok(revision) => {
                let ConditionalWrite { revision: before, value, reply, record, .. } = *write;
                if before == 0 {
                    self.bucket.capacity.add(&value.bytes);
                }
                self.sightings.wrote(record, revision, self.lost_connections);
                Ok(reply)
            }
            Err(error @ RequestError::Unacknowledged(_)) => {
                // A claim that contests the lease is granted nothing, whether the write is stored or not.
                if !matches!(write.reply, StoreReply::Claim(Claim::Busy { .. })) {
                    self.unacknowledged_writes.push(*write);
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the index entry before the record.
    async fn put_with_index_entry(
        &self,
        entry: String,
        write: &ConditionalWrite,
    ) -> Result<u64, RequestError> {
        let entry_value = Encoded { bytes: Bytes::from_static(b"+"), ttl: None };
        self.put_value(entry, None, &entry_value).await?;
        let subject = self.bucket.names.record(&write.record.key);
        self.put_value(subject, Some(write.revision), &write.value).await
    }

    fn put_value(
        &self,
        subject: String,
        expected: Option<u64>,
        value: &Encoded,
    ) -> impl Future<Output = Result<u64, RequestError>> + use<> {
        self.bucket.put(subject, expected, BucketWrite::Value(value), self.via)
    }

    /// The index entry that must exist before the record: for a claim in hold mode, and for a key that a claim makes
    /// Dead. A key that becomes Unknown was claimed in hold mode.
    fn needed_index_entry(&self, record: &Record) -> Option<String> {
        let is_needed =
            record.terms.on_lost_owner == OnLostOwner::Hold || record.state == State::Dead;
        (is_needed && self.is_claim()).then(|| self.bucket.names.index_entry(&record.key))
    }

    pub(crate) async fn delete(&mut self, revision: u64) -> Result<u64, RequestError> {
        let mark = self.unacknowledged_delete.as_ref().map(|deletion| deletion.mark.clone());
        let mark = mark.unwrap_or_else(|| Bytes::copy_from_slice(Nonce::random().as_bytes()));
        let (subject, tombstone) =
            (self.bucket.names.record(self.request.key()), BucketWrite::Tombstone(mark.clone()));
        let deleted = self.bucket.put(subject, Some(revision), tombstone, self.via).await;
        if let Err(RequestError::Unacknowledged(_)) = deleted {
            self.unacknowledged_delete = Some(Deletion { revision, mark });
        }
        deleted
    }
}
