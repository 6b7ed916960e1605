//! The fast path: in one round trip, one statement claims all absent keys of a batch, one records its
//! completions and one renews its leases. The slow path does what they do not decide, and all other requests.
//!
//! Each statement is the SQL translation of a step of `semel-core`; the slow path runs the step itself.

use std::borrow::Cow;

use futures_util::future::join_all;
use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Completion, Error, ErrorKind, KeyHash, Labels, Lease,
    OnLostOwner, Owner, RenewRequest, Renewal, Span,
    codec::{self, Packed},
    steps::{StoreReply, StoreRequest},
};
use tokio_postgres::{Row, types::ToSql};

use crate::{
    batch::{KeyGroup, RequestBatch},
    change_feed::PgNotifier,
    connection::PreparedConnection,
    error::StatementError,
    sql_types::{MAX_SQL_MILLIS, PgBytes, fits_sql, span_to_sql},
    text::escape,
    value::{ReadResult, format_code, max_attempts_to_sql, on_lost_owner_code, read},
};

/// Bytes of outcomes in one statement, approximately.
pub(crate) const MAX_STATEMENT_BYTES: usize = 4 * 1024 * 1024;

/// The groups of each statement, as indexes in `groups`. The first request of a group decides.
#[derive(Debug, Default)]
struct RequestKinds {
    claims: Vec<usize>,
    /// In several statements when their outcomes are large.
    completes: Vec<Vec<usize>>,
    renews: Vec<usize>,
}

/// Sends the statements. A group that they do not decide stays as it is, or has its record read.
///
/// # Errors
///
/// The connection must not be used again.
pub(crate) async fn run(
    connection: &PreparedConnection,
    notifier: &PgNotifier,
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
) -> Result<(), Error> {
    let kinds = sort(batch, groups);
    let completing =
        kinds.completes.iter().map(|indexes| complete(connection, batch, groups, indexes));
    let (claims, completes, renews) = tokio::join!(
        claim(connection, batch, groups, &kinds.claims),
        join_all(completing),
        renew(connection, batch, groups, &kinds.renews),
    );
    // Every statement is settled, even if one of them shows that the connection is lost.
    let mut result = settle_claims(batch, groups, &kinds.claims, claims);
    for (indexes, rows) in kinds.completes.iter().zip(completes) {
        result = settle_completes(notifier, batch, groups, indexes, rows).and(result);
    }
    settle_renews(batch, groups, &kinds.renews, renews).and(result)
}

fn sort(batch: &RequestBatch, groups: &[KeyGroup]) -> RequestKinds {
    let (mut kinds, mut bytes) = (RequestKinds::default(), 0);
    // A record that may be locked takes the slow path, which looks for locks first.
    for (index, group) in groups.iter().enumerate().filter(|(_, group)| !group.maybe_locked) {
        match batch.first_request(group) {
            StoreRequest::Claim(request) if fits_fast_path(request) => kinds.claims.push(index),
            StoreRequest::Complete(request) => {
                bytes += request.outcome.size();
                match kinds.completes.last_mut() {
                    Some(indexes) if bytes <= MAX_STATEMENT_BYTES => indexes.push(index),
                    _ => {
                        bytes = request.outcome.size();
                        kinds.completes.push(vec![index]);
                    }
                }
            }
            StoreRequest::Renew(_) => kinds.renews.push(index),
            StoreRequest::Claim(_)
            | StoreRequest::Release(_)
            | StoreRequest::Abandon(_)
            | StoreRequest::Resolve(_)
            | StoreRequest::Erase(_)
            | StoreRequest::Forget(_)
            | StoreRequest::Purge(_)
            | StoreRequest::Get(_) => {}
        }
    }
    kinds
}

fn fits_fast_path(request: &ClaimRequest) -> bool {
    fits_sql(request.terms.lease) && fits_sql(request.terms.retention)
}

/// The result of the claims.
enum ClaimResult {
    /// A single claim was granted, or the key has a record already.
    One { granted: bool },
    /// The rows of the claims that were not granted.
    Existing(Vec<Row>),
}

async fn claim(
    connection: &PreparedConnection,
    batch: &RequestBatch,
    groups: &[KeyGroup],
    indexes: &[usize],
) -> Result<ClaimResult, StatementError> {
    let request = |index: &usize| match batch.first_request(&groups[*index]) {
        StoreRequest::Claim(request) => request,
        other => unreachable!("{other:?} is not a claim"),
    };
    match indexes {
        [] => Ok(ClaimResult::Existing(Vec::new())),
        [index] if !connection.expects_duplicates() => claim_one(connection, request(index)).await,
        indexes => {
            let requests: Vec<&ClaimRequest> = indexes.iter().map(request).collect();
            let existing = claim_many(connection, &requests).await?;
            connection.expect_duplicates(2 * existing.len() > indexes.len());
            Ok(ClaimResult::Existing(existing))
        }
    }
}

async fn claim_one(
    connection: &PreparedConnection,
    request: &ClaimRequest,
) -> Result<ClaimResult, StatementError> {
    let (terms, labels) = (&request.terms, request.labels.as_ref());
    let (key, fingerprint) =
        (request.key.as_bytes().as_slice(), request.fingerprint.as_bytes().as_slice());
    let inserted = connection
        .execute(
            &connection.statements.claim_one,
            &[
                &key,
                &fingerprint,
                &request.nonce.as_bytes().as_slice(),
                &span_to_sql(terms.lease),
                &span_to_sql(terms.retention),
                &span_to_sql(terms.failure_retention),
                &expires_after(request),
                &on_lost_owner_code(terms.on_lost_owner),
                &max_attempts_to_sql(terms.max_attempts),
                &labels.map(|labels| escape(labels.namespace())),
                &labels.map(|labels| escape(labels.principal())),
                &labels.map(|labels| escape(labels.operation())),
                &labels.map(|labels| escape(labels.stored_id())),
            ],
        )
        .await?;
    connection.expect_duplicates(inserted == 0);
    Ok(ClaimResult::One { granted: inserted == 1 })
}

async fn claim_many(
    connection: &PreparedConnection,
    requests: &[&ClaimRequest],
) -> Result<Vec<Row>, StatementError> {
    fn array<'a, T>(
        requests: &[&'a ClaimRequest],
        value: impl Fn(&'a ClaimRequest) -> T,
    ) -> Vec<T> {
        requests.iter().map(|request| value(request)).collect()
    }
    fn label<'a>(
        requests: &[&'a ClaimRequest],
        part: fn(&Labels) -> &str,
    ) -> Vec<Option<Cow<'a, str>>> {
        array(requests, |request| request.labels.as_ref().map(|labels| escape(part(labels))))
    }
    let params: [&(dyn ToSql + Sync); 13] = [
        &array(requests, |request| request.key.as_bytes().as_slice()),
        &array(requests, |request| request.fingerprint.as_bytes().as_slice()),
        &array(requests, |request| request.nonce.as_bytes().as_slice()),
        &array(requests, |request| span_to_sql(request.terms.lease)),
        &array(requests, |request| span_to_sql(request.terms.retention)),
        &array(requests, |request| span_to_sql(request.terms.failure_retention)),
        &array(requests, expires_after),
        &array(requests, |request| on_lost_owner_code(request.terms.on_lost_owner)),
        &array(requests, |request| max_attempts_to_sql(request.terms.max_attempts)),
        &label(requests, Labels::namespace),
        &label(requests, Labels::principal),
        &label(requests, Labels::operation),
        &label(requests, Labels::stored_id),
    ];
    connection.query(&connection.statements.claim_many, &params).await
}

/// Milliseconds until the record of a claim expires if its owner is lost. In hold mode it never does.
fn expires_after(request: &ClaimRequest) -> Option<i64> {
    let terms = &request.terms;
    match terms.on_lost_owner {
        OnLostOwner::Rerun => Some(span_to_sql(terms.lease) + span_to_sql(terms.retention)),
        OnLostOwner::Hold => None,
    }
}

fn settle_claims(
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
    indexes: &[usize],
    claims: Result<ClaimResult, StatementError>,
) -> Result<(), Error> {
    let rows = match claims {
        Ok(ClaimResult::One { granted: false }) => return Ok(()),
        Ok(ClaimResult::One { granted: true }) => Vec::new(),
        Ok(ClaimResult::Existing(rows)) => rows,
        Err(error) => return fail_groups(batch, groups, indexes, error),
    };
    let mut exists = vec![false; indexes.len()];
    for row in &rows {
        exists[apply_row(batch, groups, indexes, row)?] = true;
    }
    for (index, _) in indexes.iter().zip(exists).filter(|(_, exists)| !exists) {
        let reply = granted(batch.first_request(&groups[*index]));
        batch.reply(&mut groups[*index], reply);
    }
    Ok(())
}

/// The reply to a claim that inserted its record.
fn granted(request: &StoreRequest) -> Option<StoreReply> {
    let StoreRequest::Claim(request) = request else { return None };
    let owner = Owner { key: request.key, nonce: request.nonce, token: 1 };
    let length = request.terms.lease.to_duration();
    Some(StoreReply::Claim(Claim::Granted(Lease { owner, attempt: 1, length, takeover: false })))
}

async fn complete(
    connection: &PreparedConnection,
    batch: &RequestBatch,
    groups: &[KeyGroup],
    indexes: &[usize],
) -> Result<Vec<Row>, StatementError> {
    let request = |index: &usize| match batch.first_request(&groups[*index]) {
        StoreRequest::Complete(request) => request,
        other => unreachable!("{other:?} is not a completion"),
    };
    let requests: Vec<&CompleteRequest> = indexes.iter().map(request).collect();
    let packed: Vec<Packed> = requests.iter().map(|it| codec::pack(&it.outcome)).collect();
    let (keys, nonces, tokens) = owners(requests.iter().map(|request| &request.owner));
    let outcomes: Vec<PgBytes> =
        packed.iter().map(|packed| PgBytes(packed.bytes.clone())).collect();
    let formats: Vec<i16> = packed.iter().map(format_code).collect();
    let successes: Vec<bool> = requests.iter().map(|it| it.outcome.is_success()).collect();
    let params: [&(dyn ToSql + Sync); 6] =
        [&keys, &nonces, &tokens, &outcomes, &formats, &successes];
    connection.query(&connection.statements.complete, &params).await
}

fn settle_completes(
    notifier: &PgNotifier,
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
    indexes: &[usize],
    rows: Result<Vec<Row>, StatementError>,
) -> Result<(), Error> {
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => return fail_groups(batch, groups, indexes, error),
    };
    for row in &rows {
        let group = &mut groups[group_of(indexes, row)?];
        if row.try_get(1).unwrap_or(true) {
            notifier.notify(batch.key(group));
        }
        batch.reply(group, [StoreReply::Complete(Completion::Recorded)]);
    }
    Ok(())
}

async fn renew(
    connection: &PreparedConnection,
    batch: &RequestBatch,
    groups: &[KeyGroup],
    indexes: &[usize],
) -> Result<Vec<Row>, StatementError> {
    if indexes.is_empty() {
        return Ok(Vec::new());
    }
    let request = |index: &usize| match batch.first_request(&groups[*index]) {
        StoreRequest::Renew(request) => request,
        other => unreachable!("{other:?} is not a renewal"),
    };
    let requests: Vec<&RenewRequest> = indexes.iter().map(request).collect();
    let (keys, nonces, tokens) = owners(requests.iter().map(|request| &request.owner));
    let max_run =
        |request: &&RenewRequest| span_to_sql(Span::from(request.max_run)).min(MAX_SQL_MILLIS);
    let max_runs: Vec<i64> = requests.iter().map(max_run).collect();
    let params: [&(dyn ToSql + Sync); 4] = [&keys, &nonces, &tokens, &max_runs];
    connection.query(&connection.statements.renew, &params).await
}

fn settle_renews(
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
    indexes: &[usize],
    rows: Result<Vec<Row>, StatementError>,
) -> Result<(), Error> {
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => return fail_groups(batch, groups, indexes, error),
    };
    for row in &rows {
        let group = &mut groups[group_of(indexes, row)?];
        batch.reply(group, [StoreReply::Renew(Renewal::Extended)]);
    }
    Ok(())
}

type OwnerArrays<'a> = (Vec<&'a [u8]>, Vec<&'a [u8]>, Vec<i64>);

fn owners<'a>(owners: impl Iterator<Item = &'a Owner>) -> OwnerArrays<'a> {
    let (mut keys, mut nonces, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    for owner in owners {
        keys.push(owner.key.as_bytes().as_slice());
        nonces.push(owner.nonce.as_bytes().as_slice());
        tokens.push(owner.token.cast_signed());
    }
    (keys, nonces, tokens)
}

/// The group that a row belongs to. The row has its index in the statement, counted from one.
fn group_of(indexes: &[usize], row: &Row) -> Result<usize, Error> {
    let index = row.try_get::<_, i64>(0).ok().and_then(|index| usize::try_from(index - 1).ok());
    index.and_then(|index| indexes.get(index).copied()).ok_or_else(unexpected_row)
}

/// Stores what was read in the group of the row's key, and returns the position of the group in `indexes`.
///
/// # Errors
///
/// The row is of a key that was not requested, or holds the record of another key: the connection is corrupt.
pub(crate) fn apply_row(
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
    indexes: &[usize],
    row: &Row,
) -> Result<usize, Error> {
    let (key, reading) = read(row)?;
    let at = |index: &usize| batch.key(&groups[*index]).cmp(&key);
    let at = indexes.binary_search_by(at).map_err(|_| unexpected_row())?;
    let group = &mut groups[indexes[at]];
    match reading {
        Ok(ReadResult::Record(read)) => group.read = Some(read),
        Ok(ReadResult::OutcomeOmitted) => group.large = true,
        Ok(ReadResult::OtherKey(other)) => return Err(wrong_record(batch, group, &other)),
        Err(error) => {
            tracing::error!(%key, %error, "postgres: a record cannot be read");
            batch.fail(group, &error);
        }
    }
    Ok(at)
}

/// Fails the group whose key was requested; other groups may have their replies already.
fn wrong_record(batch: &mut RequestBatch, group: &mut KeyGroup, other: &KeyHash) -> Error {
    let subject = format!(
        "postgres: requested {} and got {other}; the connection is dropped (check the table's indexes with amcheck)",
        batch.key(group)
    );
    let error = Error::new(ErrorKind::Corrupt, subject);
    tracing::error!(%error, "postgres: the server returned the record of another key");
    batch.fail(group, &error);
    unexpected_row()
}

fn unexpected_row() -> Error {
    let subject =
        "postgres: the server returned a key that was not requested; the connection is dropped";
    Error::new(ErrorKind::Unavailable, subject)
}

/// Replies to the groups of a statement that failed. If it met a lock, any of them may be the locked one: the slow
/// path looks for it, and a group that meets a lock for the second time is returned to its callers.
///
/// # Errors
///
/// The connection must not be used again.
pub(crate) fn fail_groups(
    batch: &mut RequestBatch,
    groups: &mut [KeyGroup],
    indexes: &[usize],
    error: StatementError,
) -> Result<(), Error> {
    let (error, lost) = match error {
        StatementError::Retry(error) | StatementError::Failed(error) => (error, false),
        StatementError::Lost(error) => (error, true),
        StatementError::Locked => {
            indexes.iter().for_each(|index| met_lock(batch, &mut groups[*index]));
            return Ok(());
        }
    };
    indexes.iter().for_each(|index| batch.fail(&mut groups[*index], &error));
    if lost { Err(error) } else { Ok(()) }
}

fn met_lock(batch: &mut RequestBatch, group: &mut KeyGroup) {
    if std::mem::replace(&mut group.maybe_locked, true) {
        batch.return_locked(group);
    }
}
