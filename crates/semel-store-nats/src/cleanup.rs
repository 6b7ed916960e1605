//! T12 without a walk over all keys: claims on hold and stuck keys are in an index.
//!
//! A key is in the index before its record says so, and leaves it only when its record is something else,
//! longer after the entry was made than any call lasts, and if nobody made it anew. So the index may name
//! too many keys, never too few. What has expired, the server deletes by itself.

use std::time::Duration;

use bytes::Bytes;

use semel_core::{
    ErrorKind, KeyHash, OnLostOwner, Purged, Record, Result, State, Stats,
    remote::listed,
    steps::{Call, Said},
};

use crate::{
    error::Trouble,
    link::{Over, Put},
    list,
    store::Inner,
};

/// Keys that are looked at together.
const PAGE: usize = 64;
/// An entry is kept at least for so long: the call that made it is over by then.
const GRACE: Duration = Duration::from_secs(60);

/// Puts at most `limit` lost owners on hold.
pub(crate) async fn purge(inner: &Inner, limit: usize) -> Result<Purged> {
    let mut purged = Purged::default();
    if limit == 0 {
        return Ok(purged);
    }
    let keys = list::keys(inner, &inner.link.names.all_watched()).await?;
    for some in keys.chunks(PAGE.min(limit)) {
        if purged.held + some.len() > limit {
            break;
        }
        let answers = inner.call_all(some.iter().copied().map(Call::Purge).collect()).await;
        for (key, answer) in some.iter().zip(answers) {
            match answer {
                Ok(Said::Purge(tidied)) => {
                    purged.held += usize::from(tidied.held);
                    if !tidied.left.as_deref().is_some_and(is_watched) {
                        unwatch(inner, key).await?;
                    }
                }
                Ok(other) => unreachable!("a job said {other:?} to a purge"),
                Err(error) => skipped(error)?,
            }
        }
    }
    Ok(purged)
}

/// What cannot be read must not hold up the others.
fn skipped(error: semel_core::Error) -> Result<()> {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::Unsupported => {
            tracing::error!(%error, "nats: left out of cleanup");
            Ok(())
        }
        _ => Err(error),
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
    let gone = Put::Gone(Bytes::new());
    match link.put(subject, Some(entry.revision), gone, Over::Own).await {
        Ok(_) | Err(Trouble::Conflict) => Ok(()),
        Err(trouble) => Err(trouble.into_error()),
    }
}

/// Counts records by their subjects, and stuck keys by the index.
pub(crate) async fn stats(inner: &Inner) -> Result<Stats> {
    let names = &inner.link.names;
    let records = list::keys(inner, &names.all_records()).await?.len();
    let mut stats =
        Stats { records: u64::try_from(records).unwrap_or(u64::MAX), ..Stats::default() };
    let stuck = list::keys(inner, &names.all_watched()).await?;
    for some in stuck.chunks(PAGE) {
        for answer in inner.call_all(some.iter().copied().map(Call::Get).collect()).await {
            match listed("nats", answer)?.map(|record| record.state) {
                Some(State::Unknown) => stats.unknown += 1,
                Some(State::Dead) => stats.dead += 1,
                Some(State::Open | State::InProgress | State::Completed | State::Erased) | None => {
                }
            }
        }
    }
    Ok(stats)
}
