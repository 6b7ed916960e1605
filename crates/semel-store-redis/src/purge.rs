//! Purge (T12): puts keys whose owner is lost on hold. It finds them by an index, without a scan of all keys. Redis
//! itself deletes expired records.
//!
//! One index has the claims in hold mode, another the Unknown and Dead keys. A key is added to its index before its
//! record is written. It is removed when its record does not belong there, if no request has added it again, and
//! after a time that is longer than any call. So an index may have too many keys, but none is missing.

use std::{collections::HashMap, time::Duration};

use semel_core::{
    ErrorKind, KeyHash, OnLostOwner, Purged, Record, Result, Span, State, Timestamp,
    steps::{PurgeReply, StoreReply, StoreRequest},
};

use crate::{
    maintenance::{EntryUpdate, IndexEntry, RedisMaintenance},
    store::RedisStoreInner,
};

/// How long an entry without its record is kept: the call that added it has ended by then.
const GRACE: Span = Span::from_millis(60_000);

/// Puts at most `limit` keys on hold. Checks every claim in hold mode whose lease may have ended.
pub(crate) async fn purge(inner: &RedisStoreInner, limit: usize) -> Result<Purged> {
    let mut purged = Purged::default();
    if limit == 0 {
        return Ok(purged);
    }
    // Entries that become due later are left to the next purge: under load, this one would never end.
    let now = inner.maintenance.now().await?;
    while purged.held < limit {
        let due = inner.maintenance.due(inner.maintenance.held(), now).await?;
        if due.is_empty() {
            break;
        }
        purged.held += check_entries(inner, due, limit - purged.held, now).await?;
    }
    remove_old_stuck_entries(&inner.maintenance, limit, now).await?;
    Ok(purged)
}

/// Checks entries of claims in hold mode together, and puts at most `limit` keys on hold.
async fn check_entries(
    inner: &RedisStoreInner,
    due: Vec<IndexEntry>,
    limit: usize,
    now: Timestamp,
) -> Result<usize> {
    let keys: Vec<_> = due.iter().map(|entry| entry.key).collect();
    let states = inner.maintenance.states(&keys).await?;
    let checked: Vec<_> = due.into_iter().zip(states).collect();
    let is_running = |state: &Option<State>| *state == Some(State::InProgress);
    let running = checked.iter().filter(|(_, state)| is_running(state)).take(limit);
    let mut replies = purge_keys(inner, running.map(|(entry, _)| entry.key).collect()).await?;
    let held = replies.values().flatten().filter(|reply| reply.held).count();
    let mut updates = Vec::with_capacity(checked.len());
    for (entry, state) in checked {
        let update = match (is_running(&state), replies.remove(&entry.key)) {
            (false, _) => next_update(&entry, None, now),
            (true, Some(Some(reply))) => next_update(&entry, reply.left.as_deref(), now),
            (true, Some(None)) => EntryUpdate::CheckAt(now.after(GRACE)),
            // Beyond the limit.
            (true, None) => continue,
        };
        updates.push((entry, update));
    }
    inner.maintenance.update(inner.maintenance.held(), &updates).await?;
    Ok(held)
}

/// The reply for each key. `None` if its record cannot be read, which must not stop the purge of the others.
async fn purge_keys(
    inner: &RedisStoreInner,
    keys: Vec<KeyHash>,
) -> Result<HashMap<KeyHash, Option<PurgeReply>>> {
    let replies = inner.call_all(keys.iter().copied().map(StoreRequest::Purge).collect()).await;
    let purged = |(key, reply): (KeyHash, Result<StoreReply>)| match reply {
        Ok(StoreReply::Purge(reply)) => Ok((key, Some(reply))),
        Ok(other) => unreachable!("a worker replied {other:?} to a purge"),
        Err(error) => match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Unsupported => {
                tracing::error!(%error, "redis: a record that cannot be read was left out of the purge");
                Ok((key, None))
            }
            _ => Err(error),
        },
    };
    keys.into_iter().zip(replies).map(purged).collect()
}

fn next_update(entry: &IndexEntry, left: Option<&Record>, now: Timestamp) -> EntryUpdate {
    let on_hold = |record: &&Record| {
        record.state == State::InProgress && record.terms.on_lost_owner == OnLostOwner::Hold
    };
    match left.filter(on_hold) {
        Some(record) => {
            EntryUpdate::CheckAt(record.lease_until.max(now.after(Duration::from_millis(1))))
        }
        None if entry.is_marked_for_removal() => EntryUpdate::Remove,
        // The request that added the entry may write its record later.
        None => EntryUpdate::RemoveAfter(now.after(GRACE)),
    }
}

/// Removes keys from the index that are not Unknown or Dead any more. Checks `limit` entries, and the rest of their
/// page.
async fn remove_old_stuck_entries(
    maintenance: &RedisMaintenance,
    limit: usize,
    now: Timestamp,
) -> Result<()> {
    let until = Timestamp::from_millis(now.as_millis().saturating_sub(GRACE.as_millis()));
    let mut checked = 0;
    while checked < limit {
        let old = maintenance.due(maintenance.stuck(), until).await?;
        if old.is_empty() {
            break;
        }
        checked += old.len();
        update_stuck_entries(maintenance, old, now).await?;
    }
    Ok(())
}

async fn update_stuck_entries(
    maintenance: &RedisMaintenance,
    old: Vec<IndexEntry>,
    now: Timestamp,
) -> Result<()> {
    let keys: Vec<_> = old.iter().map(|entry| entry.key).collect();
    let states = maintenance.states(&keys).await?;
    let update = |state| match state {
        Some(State::Unknown | State::Dead) => EntryUpdate::CheckAt(now),
        Some(State::Open | State::InProgress | State::Completed | State::Erased) | None => {
            EntryUpdate::Remove
        }
    };
    let updates: Vec<_> =
        old.into_iter().zip(states).map(|(entry, state)| (entry, update(state))).collect();
    maintenance.update(maintenance.stuck(), &updates).await
}
