//! Finds the records that other transactions have locked, so that the rest of a batch need not wait for them.
//!
//! A lock on a visible record can be queried. A key that another transaction has inserted and not committed cannot:
//! only an insert of the same key meets it, by waiting. Such keys are found by probe inserts of smaller and smaller
//! parts of the batch, which always fail on purpose. They commit nothing, so the batch waits for no disk sync.

use std::collections::HashSet;

use futures_util::future::try_join_all;
use semel_core::KeyHash;

use crate::{connection::PreparedConnection, error::StatementError};

/// Parts that a suspect part is divided into. With four, waits and round trips together are fewest.
const PARTS: usize = 4;

/// The keys that are locked. `absent` are keys without a visible record.
///
/// # Errors
///
/// [`StatementError::Locked`] when the whole table is locked.
pub(crate) async fn locked(
    connection: &PreparedConnection,
    present: &[KeyHash],
    absent: &[KeyHash],
) -> Result<HashSet<KeyHash>, StatementError> {
    let rows = connection.query(&connection.statements.locked, &[&bytes(present)]).await?;
    let keys = rows.iter().filter_map(|row| row.try_get::<_, &[u8]>(0).ok());
    let keys = keys.filter_map(|key| key.try_into().ok()).map(KeyHash::from_bytes);
    let mut locked: HashSet<KeyHash> = keys.collect();
    if !absent.is_empty() {
        connection
            .set_lock_timeout(PreparedConnection::MIN_LOCK_TIMEOUT)
            .await
            .map_err(StatementError::Lost)?;
        locked.extend(locked_inserts(connection, absent).await?);
        connection
            .set_lock_timeout(PreparedConnection::BATCH_LOCK_TIMEOUT)
            .await
            .map_err(StatementError::Lost)?;
    }
    Ok(locked)
}

async fn locked_inserts(
    connection: &PreparedConnection,
    keys: &[KeyHash],
) -> Result<Vec<KeyHash>, StatementError> {
    let (mut found, mut suspects) = (Vec::new(), vec![keys]);
    while !suspects.is_empty() {
        let parts = suspects.iter().flat_map(|part| part.chunks(part.len().div_ceil(PARTS)));
        let parts: Vec<&[KeyHash]> = parts.collect();
        let waiting = try_join_all(parts.iter().map(|part| has_to_wait(connection, part))).await?;
        let waiting = parts.into_iter().zip(waiting).filter(|(_, waits)| *waits);
        let (one, many) = waiting.map(|(part, _)| part).partition(|part| part.len() == 1);
        let one: Vec<&[KeyHash]> = one;
        found.extend(one.concat());
        suspects = many;
    }
    Ok(found)
}

async fn has_to_wait(
    connection: &PreparedConnection,
    keys: &[KeyHash],
) -> Result<bool, StatementError> {
    match connection.query(&connection.statements.probe_insert, &[&bytes(keys)]).await {
        Err(StatementError::Locked) => Ok(true),
        Err(StatementError::Lost(error)) => Err(StatementError::Lost(error)),
        // The probe failed as intended. If it failed for another reason, the real insert reports that.
        Ok(_) | Err(StatementError::Failed(_) | StatementError::Retry(_)) => Ok(false),
    }
}

fn bytes(keys: &[KeyHash]) -> Vec<&[u8]> {
    keys.iter().map(|key| key.as_bytes().as_slice()).collect()
}
