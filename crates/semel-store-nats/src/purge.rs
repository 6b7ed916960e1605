//! T12 without a walk over all keys: claims on hold and stuck keys are in an index.
//!
//! A key is in the index before its record says so, and leaves it only when its record is something else,
//! longer after the entry was made than any write is on its way, and if nobody made it anew. So the index may name
//! too many keys, never too few. What has expired, the server deletes by itself.

use std::time::Duration;

use futures_util::future::join_all;
use semel_core::{
    Error, ErrorKind, KeyHash, OnLostOwner, Purged, Record, Result, State,
    steps::{StoreReply, StoreRequest},
};

use crate::{
    bucket_client::{Over, Put},
    error::Trouble,
    list,
    store::Inner,
};

/// Keys that are looked at together.
pub(crate) const PAGE: usize = 64;
/// After so many keys that were not answered, the rest waits for the next pass.
const MAX_FAILED: usize = 64;
/// An entry is kept at least for so long. The call that made it is over much sooner, but what it wrote may
/// still arrive: the driver sends what it had taken when the connection comes back.
const GRACE: Duration = Duration::from_secs(600);

/// Puts at most `limit` lost owners on hold. One key that cannot be answered does not hold up the others.
pub(crate) async fn purge(inner: &Inner, limit: usize) -> Result<Purged> {
    let mut pass = Pass::default();
    if limit == 0 {
        return pass.end();
    }
    let mut keys = list::keys(inner, &inner.link.names.all_watched()).await?;
    // Those that fail are not always the first.
    let first = rand::random_range(0..=keys.len());
    keys.rotate_left(first);
    for some in keys.chunks(PAGE.min(limit)) {
        if pass.purged.held + some.len() > limit || pass.failed >= MAX_FAILED {
            break;
        }
        let answers = inner.call_all(some.iter().copied().map(StoreRequest::Purge).collect()).await;
        let tidied = some.iter().zip(answers).map(|(key, answer)| tidied(inner, key, answer));
        join_all(tidied).await.into_iter().for_each(|held| pass.note(held));
    }
    pass.end()
}

/// Says whether a lost owner was put on hold.
async fn tidied(inner: &Inner, key: &KeyHash, answer: Result<StoreReply>) -> Result<bool> {
    let tidied = match answer? {
        StoreReply::Purge(tidied) => tidied,
        other => unreachable!("a job said {other:?} to a purge"),
    };
    if !tidied.left.as_deref().is_some_and(is_watched) {
        unwatch(inner, key).await?;
    }
    Ok(tidied.held)
}

/// What was done so far, and what was not.
#[derive(Debug, Default)]
struct Pass {
    purged: Purged,
    answered: usize,
    failed: usize,
    /// Why the first was not answered.
    why: Option<Error>,
}

impl Pass {
    fn note(&mut self, held: Result<bool>) {
        match held {
            Ok(held) => {
                self.answered += 1;
                self.purged.held += usize::from(held);
            }
            Err(error) => self.skip(error),
        }
    }

    fn skip(&mut self, error: Error) {
        // Who cannot read a record was answered.
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Unsupported => {
                tracing::error!(%error, "nats: left out of cleanup");
                self.answered += 1;
            }
            _ => {
                tracing::warn!(%error, "nats: left to the next cleanup");
                self.failed += 1;
                self.why.get_or_insert(error);
            }
        }
    }

    /// An error if no key was answered, or too many were not.
    fn end(self) -> Result<Purged> {
        match self.why {
            Some(error) if self.answered == 0 || self.failed >= MAX_FAILED => Err(error),
            _ => Ok(self.purged),
        }
    }
}

fn is_watched(record: &Record) -> bool {
    match record.state {
        State::InProgress => record.terms.on_lost_owner == OnLostOwner::Hold,
        State::Unknown | State::Dead => true,
        State::Open | State::Completed | State::Erased => false,
    }
}

/// Takes a key out of the index, unless its entry is young or was made anew.
async fn unwatch(inner: &Inner, key: &KeyHash) -> Result<()> {
    let (link, subject) = (&inner.link, inner.link.names.watched(key));
    let Some(entry) = link.last(&subject, Over::Own).await.map_err(Trouble::into_error)? else {
        return Ok(());
    };
    if entry.value.is_none() || link.now().since(entry.at) < GRACE {
        return Ok(());
    }
    match link.put(subject, Some(entry.revision), Put::Unwatched, Over::Own).await {
        Ok(_) | Err(Trouble::Conflict) => Ok(()),
        Err(trouble) => Err(trouble.into_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(answers: impl IntoIterator<Item = Result<bool>>) -> Result<usize> {
        let mut pass = Pass::default();
        answers.into_iter().for_each(|answer| pass.note(answer));
        pass.end().map(|purged| purged.held)
    }

    #[test]
    fn one_key_that_is_not_answered_does_not_hold_up_the_others() {
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
