//! Purge (T12): puts keys whose owner is lost on hold. It finds them by an index, without a walk over all keys. The
//! server itself deletes expired records.
//!
//! The index has the claims in hold mode and the Unknown and Dead keys. A key is added to it before its record is
//! written. It is removed when its record does not belong there, if no request has added it again, and after a time
//! that is longer than any write can take. So the index may have too many keys, but none is missing.

use std::time::Duration;

use futures_util::future::join_all;
use semel_core::{
    Error, ErrorKind, KeyHash, OnLostOwner, Purged, Record, Result, State,
    steps::{StoreReply, StoreRequest},
};

use crate::{
    bucket_client::{BucketWrite, Via},
    error::RequestError,
    list,
    store::NatsStoreInner,
};

/// Keys that are checked together.
pub(crate) const PAGE: usize = 64;
/// Failed keys after which the rest is left to the next purge.
const MAX_FAILED: usize = 64;
/// How long an entry is kept at least. The call that added it ends much sooner, but its write may arrive later: the
/// driver sends what it has buffered when it is connected again.
const GRACE: Duration = Duration::from_secs(600);

/// Puts at most `limit` keys on hold. A key that fails does not stop the purge of the others.
pub(crate) async fn purge(inner: &NatsStoreInner, limit: usize) -> Result<Purged> {
    let mut pass = PurgePass::default();
    if limit == 0 {
        return pass.end();
    }
    let mut keys = list::keys(inner, &inner.bucket.names.all_index_entries()).await?;
    // Starts at a random key, so that failing keys are not always the first.
    let first = rand::random_range(0..=keys.len());
    keys.rotate_left(first);
    for page in keys.chunks(PAGE.min(limit)) {
        if pass.purged.held + page.len() > limit || pass.failed >= MAX_FAILED {
            break;
        }
        let replies = inner.call_all(page.iter().copied().map(StoreRequest::Purge).collect()).await;
        let finished = page.iter().zip(replies).map(|(key, reply)| finish_key(inner, key, reply));
        join_all(finished).await.into_iter().for_each(|held| pass.add(held));
    }
    pass.end()
}

/// Removes the index entry if it is not needed any more. True if the key was put on hold.
async fn finish_key(
    inner: &NatsStoreInner,
    key: &KeyHash,
    reply: Result<StoreReply>,
) -> Result<bool> {
    let purged = match reply? {
        StoreReply::Purge(purged) => purged,
        other => unreachable!("a purge got the reply {other:?}"),
    };
    if !purged.left.as_deref().is_some_and(is_indexed) {
        remove_index_entry(inner, key).await?;
    }
    Ok(purged.held)
}

/// The progress of a purge.
#[derive(Debug, Default)]
struct PurgePass {
    purged: Purged,
    answered: usize,
    failed: usize,
    /// Why the first key failed.
    why: Option<Error>,
}

impl PurgePass {
    fn add(&mut self, held: Result<bool>) {
        match held {
            Ok(held) => {
                self.answered += 1;
                self.purged.held += usize::from(held);
            }
            Err(error) => self.skip(error),
        }
    }

    fn skip(&mut self, error: Error) {
        // A record that cannot be read is a reply too.
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Unsupported => {
                tracing::error!(%error, "nats: a record that cannot be read was left out of the purge");
                self.answered += 1;
            }
            _ => {
                tracing::warn!(%error, "nats: a key is left to the next purge");
                self.failed += 1;
                self.why.get_or_insert(error);
            }
        }
    }

    /// An error if no key got a reply, or too many failed.
    fn end(self) -> Result<Purged> {
        match self.why {
            Some(error) if self.answered == 0 || self.failed >= MAX_FAILED => Err(error),
            _ => Ok(self.purged),
        }
    }
}

fn is_indexed(record: &Record) -> bool {
    match record.state {
        State::InProgress => record.terms.on_lost_owner == OnLostOwner::Hold,
        State::Unknown | State::Dead => true,
        State::Open | State::Completed | State::Erased => false,
    }
}

/// Removes a key from the index, unless its entry is new or was added again.
async fn remove_index_entry(inner: &NatsStoreInner, key: &KeyHash) -> Result<()> {
    let (bucket, subject) = (&inner.bucket, inner.bucket.names.index_entry(key));
    let Some(entry) =
        bucket.last(&subject, Via::Background).await.map_err(RequestError::into_error)?
    else {
        return Ok(());
    };
    if entry.value.is_none() || bucket.now().since(entry.at) < GRACE {
        return Ok(());
    }
    match bucket
        .put(subject, Some(entry.revision), BucketWrite::IndexTombstone, Via::Background)
        .await
    {
        Ok(_) | Err(RequestError::Conflict) => Ok(()),
        Err(error) => Err(error.into_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(results: impl IntoIterator<Item = Result<bool>>) -> Result<usize> {
        let mut pass = PurgePass::default();
        results.into_iter().for_each(|result| pass.add(result));
        pass.end().map(|purged| purged.held)
    }

    #[test]
    fn a_key_that_fails_does_not_stop_the_purge_of_the_others() {
        let failed = |kind| Err(Error::new(kind, "why"));
        let unavailable = || failed(ErrorKind::Unavailable);
        assert_eq!(pass([]).unwrap(), 0);
        assert_eq!(pass([unavailable(), Ok(true), Ok(false)]).unwrap(), 1);
        assert_eq!(pass([unavailable(), failed(ErrorKind::Corrupt)]).unwrap(), 0);
        let error = pass([unavailable(), unavailable()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "nothing was done");
        let most = std::iter::repeat_with(unavailable).take(MAX_FAILED);
        pass(most.chain([Ok(true)])).unwrap_err();
    }
}
