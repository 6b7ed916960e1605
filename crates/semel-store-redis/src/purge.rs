//! T12 without a walk over all keys: claims on hold and stuck keys are in indexes.
//!
//! A key is in its index before its record says so, and leaves it only when nobody put it there anew
//! and longer after that than any call lasts. So an index may name too many keys, never too few.

use std::{collections::HashMap, time::Duration};

use semel_core::{
    ErrorKind, KeyHash, OnLostOwner, Purged, Record, Result, Span, State, Timestamp,
    steps::{PurgeReply, StoreReply, StoreRequest},
};

use crate::{
    maintenance::{Chores, Entry, Fate},
    store::Inner,
};

/// An entry is kept for this long after nothing was found: the call that made it is over by then.
const GRACE: Span = Span::from_millis(60_000);

/// Puts at most `limit` lost owners on hold. Looks at every claim on hold whose lease may be over.
pub(crate) async fn purge(inner: &Inner, limit: usize) -> Result<Purged> {
    let mut purged = Purged::default();
    if limit == 0 {
        return Ok(purged);
    }
    // Whatever becomes due from here on is the next one's: under load, this one would never end.
    let now = inner.chores.now().await?;
    while purged.held < limit {
        let due = inner.chores.due(inner.chores.held(), now).await?;
        if due.is_empty() {
            break;
        }
        purged.held += look_at(inner, due, limit - purged.held, now).await?;
    }
    forget_settled(&inner.chores, limit, now).await?;
    Ok(purged)
}

/// Looks at claims on hold all at once, and puts at most `limit` of them there.
async fn look_at(inner: &Inner, due: Vec<Entry>, limit: usize, now: Timestamp) -> Result<usize> {
    let keys: Vec<_> = due.iter().map(|entry| entry.key).collect();
    let states = inner.chores.states(&keys).await?;
    let seen: Vec<_> = due.into_iter().zip(states).collect();
    let is_running = |state: &Option<State>| *state == Some(State::InProgress);
    let running = seen.iter().filter(|(_, state)| is_running(state)).take(limit);
    let mut tidied = tidy(inner, running.map(|(entry, _)| entry.key).collect()).await?;
    let held = tidied.values().flatten().filter(|tidied| tidied.held).count();
    let mut fates = Vec::with_capacity(seen.len());
    for (entry, state) in seen {
        let fate = match (is_running(&state), tidied.remove(&entry.key)) {
            (false, _) => fate(&entry, None, now),
            (true, Some(Some(tidied))) => fate(&entry, tidied.left.as_deref(), now),
            (true, Some(None)) => Fate::LookAgain(now.after(GRACE)),
            // Beyond the limit.
            (true, None) => continue,
        };
        fates.push((entry, fate));
    }
    inner.chores.keep(inner.chores.held(), &fates).await?;
    Ok(held)
}

/// What became of each key. `None`: its record cannot be read, which must not hold up the others.
async fn tidy(inner: &Inner, keys: Vec<KeyHash>) -> Result<HashMap<KeyHash, Option<PurgeReply>>> {
    let answers = inner.call_all(keys.iter().copied().map(StoreRequest::Purge).collect()).await;
    let tidied = |(key, answer): (KeyHash, Result<StoreReply>)| match answer {
        Ok(StoreReply::Purge(tidied)) => Ok((key, Some(tidied))),
        Ok(other) => unreachable!("a worker said {other:?} to a purge"),
        Err(error) => match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Unsupported => {
                tracing::error!(%error, "redis: left out of cleanup");
                Ok((key, None))
            }
            _ => Err(error),
        },
    };
    keys.into_iter().zip(answers).map(tidied).collect()
}

fn fate(entry: &Entry, left: Option<&Record>, now: Timestamp) -> Fate {
    let on_hold = |record: &&Record| {
        record.state == State::InProgress && record.terms.on_lost_owner == OnLostOwner::Hold
    };
    match left.filter(on_hold) {
        Some(record) => {
            Fate::LookAgain(record.lease_until.max(now.after(Duration::from_millis(1))))
        }
        None if entry.is_settled() => Fate::Remove,
        // Its record may be about to be written.
        None => Fate::Settled(now.after(GRACE)),
    }
}

/// Takes out of the index what is no longer stuck. Looks at `limit` entries, and the rest of their page.
async fn forget_settled(chores: &Chores, limit: usize, now: Timestamp) -> Result<()> {
    let until = Timestamp::from_millis(now.as_millis().saturating_sub(GRACE.as_millis()));
    let mut looked = 0;
    while looked < limit {
        let old = chores.due(chores.stuck(), until).await?;
        if old.is_empty() {
            break;
        }
        looked += old.len();
        forget_of(chores, old, now).await?;
    }
    Ok(())
}

async fn forget_of(chores: &Chores, old: Vec<Entry>, now: Timestamp) -> Result<()> {
    let keys: Vec<_> = old.iter().map(|entry| entry.key).collect();
    let states = chores.states(&keys).await?;
    let fate = |state| match state {
        Some(State::Unknown | State::Dead) => Fate::LookAgain(now),
        Some(State::Open | State::InProgress | State::Completed | State::Erased) | None => {
            Fate::Remove
        }
    };
    let fates: Vec<_> =
        old.into_iter().zip(states).map(|(entry, state)| (entry, fate(state))).collect();
    chores.keep(chores.stuck(), &fates).await
}
