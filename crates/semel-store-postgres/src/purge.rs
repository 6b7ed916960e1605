//! T12: deletes expired records, and sets records in hold mode to `Unknown` when their owner is lost. The owner of a
//! lapsed lease gets the grace period first, as before a takeover.
//!
//! Each row is locked and its condition checked again under the lock. Rows that another transaction has locked are
//! left for the next purge.

use semel_core::{KeyHash, OnLostOwner, Purged, Result, State};

use crate::{
    change_feed::PgNotifier,
    maintenance::PgMaintenance,
    names::PgNames,
    sql::NOW,
    value::{on_lost_owner_code, state_code},
};

pub(crate) async fn purge(
    maintenance: &PgMaintenance,
    notifier: &PgNotifier,
    limit: usize,
) -> Result<Purged> {
    let names = &maintenance.settings().names;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    maintenance.query(&contest(names), &[&limit]).await?;
    let held = maintenance.query(&hold(names), &[&limit]).await?;
    for row in &held {
        let key: Option<[u8; 32]> =
            row.try_get::<_, &[u8]>(0).ok().and_then(|key| key.try_into().ok());
        if let Some(key) = key.filter(|_| row.try_get(1).unwrap_or(true)) {
            notifier.notify(&KeyHash::from_bytes(key));
        }
    }
    let left = limit.saturating_sub(i64::try_from(held.len()).unwrap_or(i64::MAX)).max(0);
    let deleted = maintenance.query(&delete(names), &[&left]).await?;
    let deleted = deleted.first().and_then(|row| row.try_get::<_, i64>(0).ok()).unwrap_or(0);
    Ok(Purged { deleted: usize::try_from(deleted).unwrap_or(0), held: held.len() })
}

fn delete(names: &PgNames) -> String {
    let records = names.records();
    format!(
        "WITH gone AS (
           DELETE FROM {records} WHERE ctid = ANY (ARRAY (
             SELECT ctid FROM {records} WHERE expires_at <= (SELECT {NOW})
             ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
           )) RETURNING 1
         ) SELECT count(*) FROM gone"
    )
}

/// Sets contested keys whose owner did not renew within the grace period to `Unknown`.
fn hold(names: &PgNames) -> String {
    let (records, unknown) = (names.records(), state_code(State::Unknown));
    let lapsed = lapsed_on_hold(names, "completed_at IS NOT NULL");
    format!(
        "UPDATE {records} SET state = {unknown}, expires_at = NULL, completed_at = NULL
         WHERE ctid = ANY (ARRAY ({lapsed})) RETURNING key_hash, waited"
    )
}

/// Gives the owners of lapsed leases the grace period, [`Terms::grace_period`](semel_core::Terms::grace_period).
fn contest(names: &PgNames) -> String {
    let records = names.records();
    let lapsed = lapsed_on_hold(names, "completed_at IS NULL AND NOT abandoned");
    let until = "n.now + greatest(t.lease_ms / 3, 1) * interval '1 millisecond'";
    format!(
        "UPDATE {records} t SET lease_until = {until}, completed_at = {until}
         FROM (SELECT {NOW} AS now OFFSET 0) n WHERE t.ctid = ANY (ARRAY ({lapsed}))"
    )
}

/// Selects keys in hold mode whose lease is over.
fn lapsed_on_hold(names: &PgNames, condition: &str) -> String {
    let (records, in_progress) = (names.records(), state_code(State::InProgress));
    let hold = on_lost_owner_code(OnLostOwner::Hold);
    format!(
        "SELECT ctid FROM {records}
         WHERE state = {in_progress} AND on_lost_owner = {hold} AND lease_until <= (SELECT {NOW})
           AND (expires_at IS NULL OR expires_at > (SELECT {NOW})) AND {condition}
         ORDER BY lease_until LIMIT $1 FOR UPDATE SKIP LOCKED"
    )
}
