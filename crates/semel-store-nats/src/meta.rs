//! The hash secret must be the same in all processes on one prefix: the first process writes a check value of it, the
//! others compare.

use bytes::Bytes;
use semel_core::{Error, Result};

use crate::{
    bucket_client::{BucketClient, BucketWrite, Via},
    error::RequestError,
    settings::NatsSettings,
    value::Encoded,
};

impl NatsSettings {
    /// Compares the hash secret with the one in the bucket, or writes it.
    pub(crate) async fn check_meta(&self, bucket: &BucketClient) -> Result<(), RequestError> {
        let subject = &bucket.names.secret_check;
        let stored = bucket.last(subject, Via::Background).await?;
        let revision = stored.as_ref().map_or(0, |message| message.revision);
        match stored.and_then(|message| message.value) {
            Some(stored) => self.compare_secret(&stored).map_err(RequestError::Refused),
            None if self.skip_setup => Ok(()),
            None => {
                let bytes = Bytes::copy_from_slice(&self.secret_check);
                let value = Encoded { bytes, ttl: None };
                let write = BucketWrite::Value(&value);
                bucket.put(subject.clone(), Some(revision), write, Via::Background).await.map(drop)
            }
        }
    }

    pub(crate) fn compare_secret(&self, stored: &[u8]) -> Result<()> {
        if stored == self.secret_check {
            return Ok(());
        }
        Err(Error::invalid(
            "nats: the other processes on this store hash keys with another secret; give this one the \
             same --hash-secret-file or SEMEL_HASH_SECRET, or another prefix",
        ))
    }
}
