//! The slow path: what the fast path did not decide is read, decided by the steps, and written by
//! compare-and-swap.
//!
//! A record is written only over the version that was read. A group that lost the race reads again.

pub(crate) mod decide;

use std::collections::HashSet;

use futures_util::future::join_all;
use semel_core::{Error, KeyHash};
use tokio_postgres::{Row, types::ToSql};

use self::decide::{HasWaiters, KeyDecision, RecordWrite, decide};
use crate::{
    batch::{KeyGroup, RequestBatch},
    change_feed::PgNotifier,
    connection::PreparedConnection,
    error::{StatementError, contended},
    fast_path::{MAX_STATEMENT_BYTES, apply_row, fail_groups},
    locks::locked,
    value::{Arrays, RowDraft, columns},
};

/// How often a key is read again after a lost race.
const MAX_ROUNDS: usize = 16;

/// Records that one statement reads at most.
const MAX_KEYS_PER_READ: usize = 500;

/// Replies to every group that is not done.
///
/// # Errors
///
/// The connection must not be used again. A request without a reply may have happened.
pub(crate) async fn run(
    connection: &PreparedConnection,
    notifier: &PgNotifier,
    batch: &mut RequestBatch,
    mut groups: Vec<KeyGroup>,
) -> Result<(), Error> {
    for _ in 0..MAX_ROUNDS {
        groups.retain(|group| !group.is_done());
        if groups.is_empty() {
            return Ok(());
        }
        read_missing(connection, batch, &mut groups).await?;
        write(connection, notifier, batch, &mut groups).await?;
    }
    for group in &mut groups {
        match group.maybe_locked {
            true => batch.return_locked(group),
            false => batch.fail(group, &contended()),
        }
    }
    Ok(())
}

/// Reads the records of groups that have none yet.
async fn read_missing(
    connection: &PreparedConnection,
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
) -> Result<(), Error> {
    let statements = &connection.statements;
    let missing = |group: &KeyGroup| group.read.is_none() && !group.is_done();
    let small = indexes(groups, |group| missing(group) && !group.large);
    for indexes in small.chunks(MAX_KEYS_PER_READ) {
        let rows = connection.query(&statements.read, &[&keys(batch, groups, indexes)]).await;
        apply_rows(batch, groups, indexes, rows)?;
    }
    for index in indexes(groups, |group| missing(group) && group.large) {
        let key = keys(batch, groups, &[index]);
        let rows = connection.query(&statements.read_large, &[&key]).await;
        apply_rows(batch, groups, &[index], rows)?;
    }
    Ok(())
}

fn indexes(groups: &[KeyGroup], wanted: impl Fn(&KeyGroup) -> bool) -> Vec<usize> {
    groups.iter().enumerate().filter(|(_, group)| wanted(group)).map(|(index, _)| index).collect()
}

fn keys<'a>(batch: &'a RequestBatch, groups: &[KeyGroup], indexes: &[usize]) -> Vec<&'a [u8]> {
    indexes.iter().map(|index| batch.key(&groups[*index]).as_bytes().as_slice()).collect()
}

fn apply_rows(
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
    indexes: &[usize],
    rows: Result<Vec<Row>, StatementError>,
) -> Result<(), Error> {
    match rows {
        Ok(rows) => {
            rows.iter().try_for_each(|row| apply_row(batch, groups, indexes, row).map(drop))
        }
        Err(error) => fail_groups(batch, groups, indexes, error),
    }
}

/// What has to be written for a group, by its index.
struct PlannedWrite {
    index: usize,
    decision: KeyDecision,
}

/// Runs the steps, replies where nothing changes, and writes the rest.
async fn write(
    connection: &PreparedConnection,
    notifier: &PgNotifier,
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
) -> Result<(), Error> {
    let mut writes = Vec::new();
    for (index, group) in groups.iter_mut().enumerate() {
        let Some(read) = group.read.take() else { continue };
        let decision = decide(batch.requests(group), &read);
        match decision.write {
            RecordWrite::Nothing => batch.reply(group, decision.replies),
            _ => writes.push(PlannedWrite { index, decision }),
        }
    }
    let writes = without_locked(connection, batch, groups, writes).await?;
    let statements = statements(writes);
    let written = join_all(statements.iter().map(|writes| write_all(connection, writes))).await;
    let mut result = Ok(());
    for (writes, written) in statements.into_iter().zip(written) {
        result = settle(notifier, batch, groups, writes, written).and(result);
    }
    result
}

/// Sets aside the writes whose record another transaction has locked, so that the other writes need not wait.
async fn without_locked(
    connection: &PreparedConnection,
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
    mut writes: Vec<PlannedWrite>,
) -> Result<Vec<PlannedWrite>, Error> {
    let suspects: Vec<&PlannedWrite> =
        writes.iter().filter(|write| groups[write.index].maybe_locked).collect();
    if suspects.is_empty() {
        return Ok(writes);
    }
    let indexes: Vec<usize> = suspects.iter().map(|write| write.index).collect();
    let key = |write: &&PlannedWrite| *batch.key(&groups[write.index]);
    let absent = |write: &&PlannedWrite| matches!(write.decision.write, RecordWrite::Insert(_));
    let (absent, present): (Vec<&PlannedWrite>, Vec<&PlannedWrite>) =
        suspects.into_iter().partition(absent);
    let absent: Vec<KeyHash> = absent.iter().map(key).collect();
    let present: Vec<KeyHash> = present.iter().map(key).collect();
    let locked = match locked(connection, &present, &absent).await {
        Ok(locked) => locked,
        Err(StatementError::Locked) => absent.into_iter().chain(present).collect(),
        Err(error) => {
            fail_groups(batch, groups, &indexes, error)?;
            writes.retain(|write| !groups[write.index].is_done());
            return Ok(writes);
        }
    };
    let is_locked = |write: &PlannedWrite| locked.contains(batch.key(&groups[write.index]));
    let (held, free): (Vec<PlannedWrite>, Vec<PlannedWrite>) =
        writes.into_iter().partition(is_locked);
    held.into_iter().for_each(|write| set_aside(batch, groups, write));
    Ok(free)
}

/// Ends a write whose record another transaction has locked. A mark is skipped, because waiters also poll; the
/// requests of any other write are returned.
fn set_aside(
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
    PlannedWrite { index, decision }: PlannedWrite,
) {
    let group = &mut groups[index];
    match decision.write {
        RecordWrite::MarkWaited(..) => batch.reply(group, decision.replies),
        RecordWrite::Nothing
        | RecordWrite::Insert(_)
        | RecordWrite::Update(..)
        | RecordWrite::Delete(..) => {
            batch.return_locked(group);
        }
    }
}

/// Groups the writes into statements: each of one kind, and not too large.
fn statements(writes: Vec<PlannedWrite>) -> Vec<Vec<PlannedWrite>> {
    let (mut statements, mut bytes): (Vec<Vec<PlannedWrite>>, usize) = (Vec::new(), 0);
    let kind = |write: &PlannedWrite| std::mem::discriminant(&write.decision.write);
    let mut writes: Vec<PlannedWrite> = writes;
    // Stable: within a kind, writes stay in the order of their keys.
    writes.sort_by_key(|write| rank(&write.decision.write));
    for write in writes {
        let size = size(&write.decision.write);
        bytes += size;
        match statements.last_mut() {
            Some(last) if kind(&last[0]) == kind(&write) && bytes <= MAX_STATEMENT_BYTES => {
                last.push(write)
            }
            _ => {
                bytes = size;
                statements.push(vec![write]);
            }
        }
    }
    statements
}

const fn rank(write: &RecordWrite) -> u8 {
    match write {
        RecordWrite::Nothing => 0,
        RecordWrite::Insert(_) => 1,
        RecordWrite::Update(..) => 2,
        RecordWrite::Delete(..) => 3,
        RecordWrite::MarkWaited(..) => 4,
    }
}

fn size(write: &RecordWrite) -> usize {
    match write {
        RecordWrite::Insert(record) | RecordWrite::Update(record, ..) => record.size(),
        RecordWrite::Nothing | RecordWrite::Delete(..) | RecordWrite::MarkWaited(..) => 0,
    }
}

/// Does writes of one kind, and returns the keys of those that succeeded.
async fn write_all(
    connection: &PreparedConnection,
    writes: &[PlannedWrite],
) -> Result<Vec<Row>, StatementError> {
    let statements = &connection.statements;
    let (mut drafts, mut versions, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    let mut statement = &statements.mark_waited;
    for write in writes {
        match &write.decision.write {
            RecordWrite::Nothing => {}
            RecordWrite::Insert(record) => {
                statement = &statements.insert;
                drafts.push(RowDraft::new(record, HasWaiters::No));
            }
            RecordWrite::Update(record, version, waited) => {
                statement = &statements.update;
                drafts.push(RowDraft::new(record, *waited));
                versions.push(*version);
            }
            RecordWrite::Delete(key, version) => {
                statement = &statements.delete;
                keys.push(key.as_bytes().as_slice());
                versions.push(*version);
            }
            RecordWrite::MarkWaited(key, version) => {
                keys.push(key.as_bytes().as_slice());
                versions.push(*version);
            }
        }
    }
    let mut arrays: Arrays<'_> = Vec::new();
    if !keys.is_empty() {
        arrays.push(Box::new(keys));
    }
    if !versions.is_empty() {
        arrays.push(Box::new(versions));
    }
    if !drafts.is_empty() {
        arrays.extend(columns(&drafts));
    }
    let params: Vec<&(dyn ToSql + Sync)> = arrays.iter().map(|array| &**array as _).collect();
    connection.query(statement, &params).await
}

/// One of these records is locked. The next round finds out which one.
fn met_lock(batch: &mut RequestBatch, groups: &mut [KeyGroup], writes: Vec<PlannedWrite>) {
    let alone = writes.len() == 1;
    for write in writes {
        if alone || matches!(write.decision.write, RecordWrite::MarkWaited(..)) {
            set_aside(batch, groups, write);
        } else {
            groups[write.index].maybe_locked = true;
        }
    }
}

/// Replies to the groups whose write succeeded. The others read again in the next round.
fn settle(
    notifier: &PgNotifier,
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
    writes: Vec<PlannedWrite>,
    written: Result<Vec<Row>, StatementError>,
) -> Result<(), Error> {
    let rows = match written {
        Ok(rows) => rows,
        Err(StatementError::Locked) => {
            met_lock(batch, groups, writes);
            return Ok(());
        }
        Err(error) => {
            let indexes: Vec<usize> = writes.iter().map(|write| write.index).collect();
            return fail_groups(batch, groups, &indexes, error);
        }
    };
    let won: HashSet<&[u8]> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
    for PlannedWrite { index, decision } in writes {
        let key: KeyHash = *batch.key(&groups[index]);
        if won.contains(key.as_bytes().as_slice()) {
            batch.reply(&mut groups[index], decision.replies);
            if decision.notify {
                notifier.notify(&key);
            }
        }
    }
    Ok(())
}
