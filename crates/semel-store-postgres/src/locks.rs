//! Which records somebody else has locked, so that the others of a batch need not wait for them.
//!
//! A lock on a record shows. One on a key that somebody has inserted and not committed does not: only who
//! inserts the same key finds out, by waiting. Such keys are found by inserts that are always taken back,
//! of smaller and smaller parts. They commit nothing, so that no sync makes the batch wait.

use std::collections::HashSet;

use futures_util::future::try_join_all;
use semel_core::KeyHash;

use crate::{connection::prepared::Link, error::Trouble};

/// Waits and trips together are fewest with fours.
const PARTS: usize = 4;

/// Those of the keys that are locked. `absent` have no record that anybody can see.
///
/// # Errors
///
/// [`Trouble::Locked`] when the whole table is.
pub(crate) async fn locked(
    link: &Link,
    present: &[KeyHash],
    absent: &[KeyHash],
) -> Result<HashSet<KeyHash>, Trouble> {
    let rows = link.query(&link.statements.locked, &[&bytes(present)]).await?;
    let shown = rows.iter().filter_map(|row| row.try_get::<_, &[u8]>(0).ok());
    let shown = shown.filter_map(|key| key.try_into().ok()).map(KeyHash::from_bytes);
    let mut locked: HashSet<KeyHash> = shown.collect();
    if !absent.is_empty() {
        link.wait_for_locks(Link::NO_WAIT).await.map_err(Trouble::Lost)?;
        locked.extend(hidden(link, absent).await?);
        link.wait_for_locks(Link::LOCK_WAIT).await.map_err(Trouble::Lost)?;
    }
    Ok(locked)
}

async fn hidden(link: &Link, keys: &[KeyHash]) -> Result<Vec<KeyHash>, Trouble> {
    let (mut found, mut suspects) = (Vec::new(), vec![keys]);
    while !suspects.is_empty() {
        let parts = suspects.iter().flat_map(|part| part.chunks(part.len().div_ceil(PARTS)));
        let parts: Vec<&[KeyHash]> = parts.collect();
        let waiting = try_join_all(parts.iter().map(|part| has_to_wait(link, part))).await?;
        let waiting = parts.into_iter().zip(waiting).filter(|(_, waits)| *waits);
        let (one, many) = waiting.map(|(part, _)| part).partition(|part| part.len() == 1);
        let one: Vec<&[KeyHash]> = one;
        found.extend(one.concat());
        suspects = many;
    }
    Ok(found)
}

async fn has_to_wait(link: &Link, keys: &[KeyHash]) -> Result<bool, Trouble> {
    match link.query(&link.statements.attempt, &[&bytes(keys)]).await {
        Err(Trouble::Locked) => Ok(true),
        Err(Trouble::Lost(error)) => Err(Trouble::Lost(error)),
        // It was taken back. If that has another cause than we made up, the real insert will tell.
        Ok(_) | Err(Trouble::Said(_) | Trouble::Again(_)) => Ok(false),
    }
}

fn bytes(keys: &[KeyHash]) -> Vec<&[u8]> {
    keys.iter().map(|key| key.as_bytes().as_slice()).collect()
}
