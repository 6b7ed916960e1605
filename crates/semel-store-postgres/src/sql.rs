//! The SQL of the fast path and of the slow path, each statement beside the promise it keeps.
//!
//! Arrays are sorted by key, and rows are locked in that order, so that two batches cannot deadlock.
//! Times are truncated to milliseconds, the precision of the steps.

use semel_core::{OnLostOwner, State};

use crate::{
    names::PgNames,
    sql_types::MAX_SQL_MILLIS,
    value::{COLUMNS, TYPES, on_lost_owner_code, state_code},
};

/// The store's time. Not `now()`, which is the start of the transaction.
pub(crate) const NOW: &str = "date_trunc('milliseconds', clock_timestamp())";

/// A larger outcome is read by itself, not together with others.
pub(crate) const SMALL_OUTCOME_BYTES: usize = 64 * 1024;

/// The columns of a claim that come from its request; the others are computed.
const CLAIMED: &str = "key_hash, fingerprint, nonce, lease_ms, retention_ms, failure_retention_ms, \
                       on_lost_owner, max_attempts, namespace, principal, operation, caller_id";

/// What [`crate::value::read`] reads from the table `t`: `xmin`, all columns, and whether there is an outcome.
/// With `small`, outcomes over [`SMALL_OUTCOME_BYTES`] are left out.
pub(crate) fn selection(small: bool) -> String {
    let column = |name: &&str| match (*name, small) {
        ("outcome", true) => {
            format!("CASE WHEN octet_length(t.outcome) <= {SMALL_OUTCOME_BYTES} THEN t.outcome END")
        }
        (name, _) => format!("t.{name}"),
    };
    let columns: Vec<String> = COLUMNS.iter().map(column).collect();
    format!("t.xmin, {}, t.outcome IS NOT NULL", columns.join(", "))
}

/// One claim: inserts the record if the key is absent, and returns whether it did. The primary key lets one of
/// several concurrent inserts through.
pub(crate) fn claim_one(names: &PgNames) -> String {
    let values = "$1::bytea, $2::bytea, $3::bytea, $4::bigint, $5::bigint, $6::bigint, \
                  $8::smallint, $9::integer, $10::text, $11::text, $12::text, $13::text";
    let insert = first_claim(names, values, "$4::bigint", "$7::bigint", "");
    format!("{insert} ON CONFLICT ON CONSTRAINT \"{}_pkey\" DO NOTHING", names.table)
}

/// Many claims: inserts the absent keys, and returns the records of the others.
pub(crate) fn claim_many(names: &PgNames) -> String {
    let (records, selection) = (names.records(), selection(true));
    let values = "i.key_hash, i.fingerprint, i.nonce, i.lease_ms, i.retention_ms, \
                  i.failure_retention_ms, i.on_lost_owner, i.max_attempts, i.namespace, i.principal, \
                  i.operation, i.caller_id";
    let insert = first_claim(names, values, "i.lease_ms", "i.expires_ms", "input i,");
    format!(
        "WITH input AS MATERIALIZED (
           SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[],
             $6::bigint[], $7::bigint[], $8::smallint[], $9::integer[], $10::text[], $11::text[],
             $12::text[], $13::text[])
           AS i(key_hash, fingerprint, nonce, lease_ms, retention_ms, failure_retention_ms, expires_ms,
                on_lost_owner, max_attempts, namespace, principal, operation, caller_id)
         ), made AS (
           {insert} ON CONFLICT ON CONSTRAINT \"{}_pkey\" DO NOTHING RETURNING key_hash
         )
         SELECT i.key_hash, {NOW}, {selection}
         FROM input i LEFT JOIN {records} t ON t.key_hash = i.key_hash
         WHERE i.key_hash NOT IN (SELECT key_hash FROM made)",
        names.table,
    )
}

/// The insert of the first claim of a key.
fn first_claim(names: &PgNames, values: &str, lease: &str, expires: &str, from: &str) -> String {
    let (records, in_progress) = (names.records(), state_code(State::InProgress));
    format!(
        "INSERT INTO {records} ({CLAIMED}, state, token, attempts, dirty, abandoned, waited,
           claimed_at, lease_until, created_at, expires_at)
         SELECT {values}, {in_progress}, 1, 1, false, false, false,
           n.now, n.now + {lease} * interval '1 millisecond', n.now,
           n.now + {expires} * interval '1 millisecond'
         FROM {from} (SELECT {NOW} AS now OFFSET 0) n"
    )
}

/// Records the outcomes of current owners, and returns their places in the arrays. Others are not recorded.
pub(crate) fn complete(names: &PgNames) -> String {
    let (records, completed) = (names.records(), state_code(State::Completed));
    let [in_progress, unknown, dead] =
        [State::InProgress, State::Unknown, State::Dead].map(state_code);
    format!(
        "UPDATE {records} t
         SET state = {completed}, outcome = i.outcome, outcome_format = i.format, completed_at = n.now,
             expires_at = n.now + interval '1 millisecond'
               * CASE WHEN i.success THEN t.retention_ms ELSE t.failure_retention_ms END
         FROM (SELECT {NOW} AS now OFFSET 0) n,
              unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bytea[], $5::smallint[], $6::boolean[])
                WITH ORDINALITY AS i(key_hash, nonce, token, outcome, format, success, place)
         WHERE t.key_hash = i.key_hash AND t.nonce = i.nonce AND t.token = i.token
           AND t.state IN ({in_progress}, {unknown}, {dead})
           AND (t.expires_at > n.now OR t.expires_at IS NULL)
           AND t.retention_ms < {MAX_SQL_MILLIS} AND t.failure_retention_ms < {MAX_SQL_MILLIS}
         RETURNING i.place, t.waited"
    )
}

/// Renews the leases of current owners, and returns their places in the arrays. Others are not renewed. A record in
/// progress with a time of completion is contested; the renewal ends that.
pub(crate) fn renew(names: &PgNames) -> String {
    let (records, in_progress) = (names.records(), state_code(State::InProgress));
    let rerun = on_lost_owner_code(OnLostOwner::Rerun);
    format!(
        "UPDATE {records} t
         SET lease_until = n.now + t.lease_ms * interval '1 millisecond',
             expires_at = CASE WHEN t.on_lost_owner = {rerun}
               THEN n.now + (t.lease_ms + t.retention_ms) * interval '1 millisecond' END,
             completed_at = NULL
         FROM (SELECT {NOW} AS now OFFSET 0) n,
              unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[])
                WITH ORDINALITY AS i(key_hash, nonce, token, max_run_ms, place)
         WHERE t.key_hash = i.key_hash AND t.nonce = i.nonce AND t.token = i.token
           AND t.state = {in_progress} AND NOT t.abandoned
           AND (t.expires_at > n.now OR t.expires_at IS NULL)
           AND t.claimed_at <= n.now
           AND n.now < t.claimed_at + i.max_run_ms * interval '1 millisecond'
           AND t.lease_ms < {MAX_SQL_MILLIS} AND t.retention_ms < {MAX_SQL_MILLIS}
         RETURNING i.place"
    )
}

/// Reads records; returns one row for each key, also for absent ones.
pub(crate) fn read(names: &PgNames) -> String {
    read_statement(names, true)
}

/// Reads one record whose outcome is large.
pub(crate) fn read_large(names: &PgNames) -> String {
    read_statement(names, false)
}

fn read_statement(names: &PgNames, small: bool) -> String {
    let (records, selection) = (names.records(), selection(small));
    format!(
        "SELECT i.key_hash, {NOW}, {selection}
         FROM unnest($1::bytea[]) AS i(key_hash) LEFT JOIN {records} t ON t.key_hash = i.key_hash"
    )
}

/// Inserts records of keys that were absent when they were read.
pub(crate) fn insert(names: &PgNames) -> String {
    let (records, columns) = (names.records(), COLUMNS.join(", "));
    format!(
        "INSERT INTO {records} ({columns}) SELECT {columns} FROM unnest({}) AS i({columns})
         ON CONFLICT ON CONSTRAINT \"{}_pkey\" DO NOTHING RETURNING key_hash",
        arrays(1),
        names.table,
    )
}

/// Updates exactly the version that was read.
pub(crate) fn update(names: &PgNames) -> String {
    let (records, columns) = (names.records(), COLUMNS.join(", "));
    let set: Vec<String> = COLUMNS.iter().map(|name| format!("{name} = i.{name}")).collect();
    format!(
        "UPDATE {records} t SET {}
         FROM unnest({}, $1::xid[]) AS i({columns}, version)
         WHERE t.key_hash = i.key_hash AND t.xmin = i.version RETURNING t.key_hash",
        set[1..].join(", "),
        arrays(2),
    )
}

/// Deletes exactly the version that was read.
pub(crate) fn delete(names: &PgNames) -> String {
    let records = names.records();
    format!(
        "DELETE FROM {records} t USING unnest($1::bytea[], $2::xid[]) AS i(key_hash, version)
         WHERE t.key_hash = i.key_hash AND t.xmin = i.version RETURNING t.key_hash"
    )
}

/// Marks exactly the version that was read as waited for. The next change of the record notifies the waiter.
pub(crate) fn mark_waited(names: &PgNames) -> String {
    let records = names.records();
    format!(
        "UPDATE {records} t SET waited = true
         FROM unnest($1::bytea[], $2::xid[]) AS i(key_hash, version)
         WHERE t.key_hash = i.key_hash AND t.xmin = i.version RETURNING t.key_hash"
    )
}

/// Returns the records that other transactions have locked. Uncommitted inserts are not visible. Fails when the
/// table is locked against changes: the delete of no row needs that table lock.
pub(crate) fn locked(names: &PgNames) -> String {
    let records = names.records();
    format!(
        "WITH free AS (
           SELECT key_hash FROM {records} WHERE key_hash = ANY ($1::bytea[]) FOR UPDATE SKIP LOCKED
         ), nothing AS (
           DELETE FROM {records} WHERE false
         )
         SELECT key_hash FROM {records} WHERE key_hash = ANY ($1::bytea[])
           AND key_hash NOT IN (SELECT key_hash FROM free)"
    )
}

/// Inserts that only show whether they have to wait for a lock. The cast of a text to a number always fails, which
/// rolls them back.
pub(crate) fn probe_insert(names: &PgNames) -> String {
    let records = names.records();
    format!(
        "WITH made AS (
           INSERT INTO {records} (key_hash, state, token, attempts, dirty, abandoned, waited, lease_ms,
             retention_ms, failure_retention_ms, on_lost_owner, claimed_at, lease_until, created_at)
           SELECT key_hash, 0, 0, 0, false, false, false, 0, 0, 0, 0, n.now, n.now, n.now
           FROM unnest($1::bytea[]) AS i(key_hash), (SELECT {NOW} AS now OFFSET 0) n
           ON CONFLICT ON CONSTRAINT \"{}_pkey\" DO NOTHING RETURNING key_hash
         )
         SELECT ('semel looked for locks and takes this back: ' || count(*))::integer FROM made",
        names.table,
    )
}

/// All columns as array parameters, the first of them `$first`.
fn arrays(first: usize) -> String {
    let array = |(place, kind): (usize, &&str)| format!("${}::{kind}[]", first + place);
    TYPES.iter().enumerate().map(array).collect::<Vec<_>>().join(", ")
}
