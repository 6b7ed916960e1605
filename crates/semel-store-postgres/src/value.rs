//! Converts a record to the columns of a row and back. The order of the columns is defined here only.

use std::num::NonZeroU32;

use bytes::Bytes;
use semel_core::{
    Error, ErrorKind, Fingerprint, KeyHash, Labels, Nonce, OnLostOwner, Record, Result, State,
    Terms, Timestamp,
    codec::{self, Packed},
};
use tokio_postgres::{
    Row,
    types::{FromSql, ToSql},
};

use crate::{
    slow_path::decide::{HasWaiters, ReadRecord, StoredRecord},
    sql_types::{PgBytes, PgTimestamp, span_from_sql, span_to_sql},
    text::{escape, unescape},
};

/// A row to write.
#[derive(Debug)]
pub(crate) struct RowDraft<'a> {
    record: &'a Record,
    has_waiters: HasWaiters,
    outcome: Option<Packed>,
}

impl<'a> RowDraft<'a> {
    pub(crate) fn new(record: &'a Record, has_waiters: HasWaiters) -> Self {
        let outcome = record.outcome.as_ref().map(|outcome| codec::pack(outcome));
        Self { record, has_waiters, outcome }
    }
}

/// One array parameter for each column.
pub(crate) type Arrays<'a> = Vec<Box<dyn ToSql + Send + Sync + 'a>>;

macro_rules! columns {
    ($row:ident => $($name:ident: $type:literal = $value:expr;)*) => {
        /// Every column, in the order in which rows are read and written.
        pub(crate) const COLUMNS: &[&str] = &[$(stringify!($name)),*];
        /// Their types.
        pub(crate) const TYPES: &[&str] = &[$($type),*];

        pub(crate) fn columns<'a>(drafts: &'a [RowDraft<'a>]) -> Arrays<'a> {
            vec![$(Box::new(drafts.iter().map(|$row| $value).collect::<Vec<_>>())),*]
        }
    };
}

columns! { draft =>
    key_hash: "bytea" = draft.record.key.as_bytes().as_slice();
    state: "smallint" = state_code(draft.record.state);
    fingerprint: "bytea" = draft.record.fingerprint.as_ref().map(|it| it.as_bytes().as_slice());
    nonce: "bytea" = draft.record.nonce.as_ref().map(|it| it.as_bytes().as_slice());
    token: "bigint" = draft.record.token.cast_signed();
    attempts: "integer" = draft.record.attempts.cast_signed();
    dirty: "boolean" = draft.record.dirty;
    abandoned: "boolean" = draft.record.abandoned;
    waited: "boolean" = draft.has_waiters == HasWaiters::Yes;
    claimed_at: "timestamptz" = PgTimestamp(draft.record.claimed_at);
    lease_until: "timestamptz" = PgTimestamp(draft.record.lease_until);
    created_at: "timestamptz" = PgTimestamp(draft.record.created_at);
    completed_at: "timestamptz" = completed_at(draft.record).map(PgTimestamp);
    expires_at: "timestamptz" = draft.record.expires_at.map(PgTimestamp);
    lease_ms: "bigint" = span_to_sql(draft.record.terms.lease);
    retention_ms: "bigint" = span_to_sql(draft.record.terms.retention);
    failure_retention_ms: "bigint" = span_to_sql(draft.record.terms.failure_retention);
    on_lost_owner: "smallint" = on_lost_owner_code(draft.record.terms.on_lost_owner);
    max_attempts: "integer" = max_attempts_to_sql(draft.record.terms.max_attempts);
    namespace: "text" = draft.record.labels.as_ref().map(|labels| escape(labels.namespace()));
    principal: "text" = draft.record.labels.as_ref().map(|labels| escape(labels.principal()));
    operation: "text" = draft.record.labels.as_ref().map(|labels| escape(labels.operation()));
    caller_id: "text" = draft.record.labels.as_ref().map(|labels| escape(labels.stored_id()));
    outcome_format: "smallint" = draft.outcome.as_ref().map(format_code);
    outcome: "bytea" = draft.outcome.as_ref().map(|packed| PgBytes(packed.bytes.clone()));
}

/// What was read for one key.
#[derive(Debug)]
pub(crate) enum ReadResult {
    Record(ReadRecord),
    /// The record's outcome is large and has to be read by itself.
    OutcomeOmitted,
    /// The row holds another key: the server or the connection is corrupt.
    OtherKey(KeyHash),
}

/// Reads a row of: the requested key, the store's time, `xmin`, all columns, and whether there is an outcome.
pub(crate) fn read(row: &Row) -> Result<(KeyHash, Result<ReadResult>)> {
    let mut cells = RowReader { row, column: 0 };
    let requested = KeyHash::from_bytes(cells.array()?);
    let PgTimestamp(now) = cells.next()?;
    let Some(version) = cells.next()? else {
        return Ok((requested, Ok(ReadResult::Record(ReadRecord { stored: None, now }))));
    };
    let key = KeyHash::from_bytes(cells.array()?);
    if key != requested {
        return Ok((requested, Ok(ReadResult::OtherKey(key))));
    }
    let reading = read_record(key, &mut cells).map(|read| match read {
        Some((record, waited)) => ReadResult::Record(ReadRecord {
            stored: Some(StoredRecord { record, version, waited }),
            now,
        }),
        None => ReadResult::OutcomeOmitted,
    });
    Ok((requested, reading))
}

/// The columns after the key. `None` when the outcome was left out.
fn read_record(key: KeyHash, cells: &mut RowReader<'_>) -> Result<Option<(Record, bool)>> {
    let state = state_of(cells.next()?)?;
    let fingerprint = cells.array_or_none()?.map(Fingerprint::from_stored);
    let nonce = cells.array_or_none()?.map(Nonce::from_bytes);
    let token = cells.next::<i64>()?.cast_unsigned();
    let attempts = cells.next::<i32>()?.cast_unsigned();
    let (dirty, abandoned, waited) = (cells.next()?, cells.next()?, cells.next()?);
    let PgTimestamp(claimed_at) = cells.next()?;
    let PgTimestamp(lease_until) = cells.next()?;
    let PgTimestamp(created_at) = cells.next()?;
    let completed_at = cells.next::<Option<PgTimestamp>>()?.map(|at| at.0);
    let contested = state == State::InProgress && completed_at.is_some();
    let expires_at = cells.next::<Option<PgTimestamp>>()?.map(|at| at.0);
    let terms = Terms {
        lease: span_from_sql(cells.next()?),
        retention: span_from_sql(cells.next()?),
        failure_retention: span_from_sql(cells.next()?),
        on_lost_owner: on_lost_owner_of(cells.next()?)?,
        max_attempts: cells
            .next::<Option<i32>>()?
            .and_then(|max| NonZeroU32::new(max.cast_unsigned())),
    };
    let labels = read_labels(cells)?;
    let (format, packed) = (cells.next::<Option<i16>>()?, cells.next::<Option<&[u8]>>()?);
    if cells.next::<bool>()? && packed.is_none() {
        return Ok(None);
    }
    let outcome =
        packed.map(|packed| codec::unpack(Bytes::copy_from_slice(packed), is_compressed(format)?));
    let outcome = outcome.transpose()?;
    let record = Record {
        key,
        state,
        fingerprint,
        nonce,
        token,
        attempts,
        dirty,
        abandoned,
        contested,
        claimed_at,
        lease_until,
        terms,
        created_at,
        completed_at: completed_at.filter(|_| !contested),
        expires_at,
        outcome,
        labels,
    };
    check(&record)?;
    Ok(Some((record, waited)))
}

/// The column of a contested record has the end of its grace period. It needs no column of its own, which nodes of an
/// earlier version would refuse.
fn completed_at(record: &Record) -> Option<Timestamp> {
    match record.state {
        State::InProgress => record.contested.then_some(record.lease_until),
        State::Open | State::Completed | State::Unknown | State::Dead | State::Erased => {
            record.completed_at
        }
    }
}

/// Checks what the steps rely on.
fn check(record: &Record) -> Result<()> {
    match record.state {
        State::Completed if record.outcome.is_none() => {
            Err(corrupt("completed without an outcome"))
        }
        State::InProgress if record.nonce.is_none() => Err(corrupt("in progress without an owner")),
        State::Open
        | State::InProgress
        | State::Completed
        | State::Unknown
        | State::Dead
        | State::Erased => Ok(()),
    }
}

fn read_labels(cells: &mut RowReader<'_>) -> Result<Option<Labels>> {
    let parts: [Option<&str>; 4] = [cells.next()?, cells.next()?, cells.next()?, cells.next()?];
    let [Some(namespace), Some(principal), Some(operation), Some(id)] =
        parts.map(|it| it.map(unescape))
    else {
        return Ok(None);
    };
    Ok(Some(Labels::new(&namespace, &principal, &operation, &id)))
}

struct RowReader<'a> {
    row: &'a Row,
    column: usize,
}

impl<'a> RowReader<'a> {
    fn next<T: FromSql<'a>>(&mut self) -> Result<T> {
        let cell = self.row.try_get(self.column);
        self.column += 1;
        // The driver's error has no more information than this.
        cell.map_err(|_| corrupt("a column does not have the type that migrations gave it"))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.array_or_none()?.ok_or_else(|| corrupt("it has no key"))
    }

    fn array_or_none<const N: usize>(&mut self) -> Result<Option<[u8; N]>> {
        let bytes: Option<&[u8]> = self.next()?;
        let array = bytes.map(|bytes| bytes.try_into().map_err(|_| corrupt("a hash is cut short")));
        array.transpose()
    }
}

pub(crate) fn max_attempts_to_sql(max: Option<NonZeroU32>) -> Option<i32> {
    max.map(|max| max.get().cast_signed())
}

pub(crate) const fn state_code(state: State) -> i16 {
    match state {
        State::Open => 1,
        State::InProgress => 2,
        State::Completed => 3,
        State::Unknown => 4,
        State::Dead => 5,
        State::Erased => 6,
    }
}

fn state_of(code: i16) -> Result<State> {
    Ok(match code {
        1 => State::Open,
        2 => State::InProgress,
        3 => State::Completed,
        4 => State::Unknown,
        5 => State::Dead,
        6 => State::Erased,
        _ => return Err(corrupt("unknown state")),
    })
}

pub(crate) const fn on_lost_owner_code(on_lost_owner: OnLostOwner) -> i16 {
    match on_lost_owner {
        OnLostOwner::Rerun => 0,
        OnLostOwner::Hold => 1,
    }
}

fn on_lost_owner_of(code: i16) -> Result<OnLostOwner> {
    match code {
        0 => Ok(OnLostOwner::Rerun),
        1 => Ok(OnLostOwner::Hold),
        _ => Err(corrupt("unknown rule for a lost owner")),
    }
}

pub(crate) const fn format_code(packed: &Packed) -> i16 {
    if packed.compressed { 2 } else { 1 }
}

fn is_compressed(format: Option<i16>) -> Result<bool> {
    match format {
        Some(1) => Ok(false),
        Some(2) => Ok(true),
        Some(newer) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "postgres: an outcome has format {newer}, which is newer than this build; upgrade this node first"
            ),
        )),
        None => Err(corrupt("an outcome without a format")),
    }
}

fn corrupt(why: &str) -> Error {
    let subject =
        format!("postgres: a record cannot be read: {why}; was the table changed by hand?");
    Error::new(ErrorKind::Corrupt, subject)
}
