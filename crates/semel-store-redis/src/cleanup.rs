//! T12 without a walk over all keys: claims on hold and stuck keys are in indexes.
//!
//! A key is in its index before its record says so, and leaves it only when nobody put it there anew
//! and longer after that than any call lasts. So an index may name too many keys, never too few.

use std::time::Duration;

use semel_core::{OnLostOwner, Purged, Record, Result, Span, State, Stats, Timestamp};

use crate::{
    call::{Call, Said, Tidied},
    chores::{Chores, Entry, Fate, PAGE},
    store::Inner,
};

/// An entry is kept for this long after it was due: the call that made it is over by then.
const GRACE: Span = Span::from_millis(60_000);

/// Puts at most `limit` lost owners on hold. Looks at every claim on hold whose lease may be over.
pub(crate) async fn purge(inner: &Inner, limit: usize) -> Result<Purged> {
    let mut purged = Purged::default();
    while purged.held < limit {
        let now = inner.chores.now().await?;
        let due = inner.chores.due(inner.chores.held(), now).await?;
        if due.is_empty() {
            break;
        }
        purged.held += look_at(inner, due, limit - purged.held, now).await?;
    }
    if limit > 0 {
        forget_settled(&inner.chores).await?;
    }
    Ok(purged)
}

/// Looks at claims on hold, until `limit` of them were put there.
async fn look_at(inner: &Inner, due: Vec<Entry>, limit: usize, now: Timestamp) -> Result<usize> {
    let keys: Vec<_> = due.iter().map(|entry| entry.key).collect();
    let states = inner.chores.states(&keys).await?;
    let mut held = 0;
    for (entry, state) in due.iter().zip(states) {
        let left = match state {
            Some(State::InProgress) => {
                let Tidied { held: is_held, left } = tidy(inner, entry).await?;
                held += usize::from(is_held);
                left
            }
            _ => None,
        };
        inner.chores.keep(inner.chores.held(), entry, fate(entry, left.as_ref(), now)).await?;
        if held == limit {
            break;
        }
    }
    Ok(held)
}

async fn tidy(inner: &Inner, entry: &Entry) -> Result<Tidied> {
    match inner.call(Call::Purge(entry.key)).await? {
        Said::Purge(tidied) => Ok(tidied),
        other => unreachable!("a worker said {other:?} to a purge"),
    }
}

fn fate(entry: &Entry, left: Option<&Record>, now: Timestamp) -> Fate {
    let on_hold = |record: &&Record| {
        record.state == State::InProgress && record.terms.on_lost_owner == OnLostOwner::Hold
    };
    match left.filter(on_hold) {
        Some(record) => {
            Fate::LookAgain(record.lease_until.max(now.after(Duration::from_millis(1))))
        }
        None if entry.at().after(GRACE) < now => Fate::Remove,
        // Its record may be about to be written.
        None => Fate::LookAgain(now.after(GRACE)),
    }
}

/// Takes out of the index what is no longer stuck, a page at a time.
async fn forget_settled(chores: &Chores) -> Result<()> {
    let now = chores.now().await?;
    let millis = now.as_millis().saturating_sub(GRACE.as_millis());
    let old = chores.due(chores.stuck(), Timestamp::from_millis(millis)).await?;
    let keys: Vec<_> = old.iter().map(|entry| entry.key).collect();
    let states = chores.states(&keys).await?;
    for (entry, state) in old.iter().zip(states) {
        let is_stuck = matches!(state, Some(State::Unknown | State::Dead));
        let fate = if is_stuck { Fate::LookAgain(now) } else { Fate::Remove };
        chores.keep(chores.stuck(), entry, fate).await?;
    }
    Ok(())
}

/// Counts stuck keys by their index.
pub(crate) async fn stats(inner: &Inner) -> Result<Stats> {
    let chores = &inner.chores;
    let mut stats = Stats { records: chores.size().await?, unknown: 0, dead: 0 };
    let mut from = 0;
    loop {
        let keys = chores.page(chores.stuck(), from).await?;
        for state in chores.states(&keys).await? {
            match state {
                Some(State::Unknown) => stats.unknown += 1,
                Some(State::Dead) => stats.dead += 1,
                Some(State::Open | State::InProgress | State::Completed | State::Erased) | None => {
                }
            }
        }
        if keys.len() < PAGE {
            return Ok(stats);
        }
        from += PAGE;
    }
}
