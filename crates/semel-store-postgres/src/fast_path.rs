//! The first trip of a batch: claims of absent keys, completions and renewals are decided by one statement
//! for all of a kind. Whatever they do not decide, and all other calls, read their records.
//!
//! Each statement is a translation of a step; `work` runs the step itself for what is left.

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
    batch::{Group, Work},
    change_feed::Bell,
    connection::prepared::Link,
    error::Trouble,
    sql_types::{Blob, SANE_MILLIS, is_sane, span_to_sql},
    text::escape,
    value::{Reading, format_code, max_attempts_to_sql, on_lost_owner_code, read},
};

/// Bytes of outcomes in one statement, near enough.
pub(crate) const HEAVY_BYTES: usize = 4 * 1024 * 1024;

/// Which groups take part in which statement, by the kind of their first call. Places in `groups`.
#[derive(Debug, Default)]
struct Kinds {
    claims: Vec<usize>,
    /// In several statements when their outcomes are large.
    completes: Vec<Vec<usize>>,
    renews: Vec<usize>,
}

/// Does the first trip. Groups that it did not decide stay as they are, or have their record found.
///
/// # Errors
///
/// The connection is not to be used again.
pub(crate) async fn first_trip(
    link: &Link,
    bell: &Bell,
    work: &mut Work,
    groups: &mut [Group],
) -> Result<(), Error> {
    let kinds = sort(work, groups);
    let completing = kinds.completes.iter().map(|places| complete(link, work, groups, places));
    let (claims, completes, renews) = tokio::join!(
        claim(link, work, groups, &kinds.claims),
        join_all(completing),
        renew(link, work, groups, &kinds.renews),
    );
    // All of them are settled, also when one shows that the connection is lost.
    let mut trip = settle_claims(work, groups, &kinds.claims, claims);
    for (places, rows) in kinds.completes.iter().zip(completes) {
        trip = settle_completes(bell, work, groups, places, rows).and(trip);
    }
    settle_renews(work, groups, &kinds.renews, renews).and(trip)
}

fn sort(work: &Work, groups: &[Group]) -> Kinds {
    let (mut kinds, mut bytes) = (Kinds::default(), 0);
    // What may be locked goes the long way, where it is looked at first.
    for (place, group) in groups.iter().enumerate().filter(|(_, group)| !group.suspect) {
        match work.first(group) {
            StoreRequest::Claim(request) if is_translatable(request) => kinds.claims.push(place),
            StoreRequest::Complete(request) => {
                bytes += request.outcome.size();
                match kinds.completes.last_mut() {
                    Some(places) if bytes <= HEAVY_BYTES => places.push(place),
                    _ => {
                        bytes = request.outcome.size();
                        kinds.completes.push(vec![place]);
                    }
                }
            }
            StoreRequest::Renew(_) => kinds.renews.push(place),
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

fn is_translatable(request: &ClaimRequest) -> bool {
    is_sane(request.terms.lease) && is_sane(request.terms.retention)
}

/// How claims went.
enum Claimed {
    /// A single one was granted, or met a record.
    One { granted: bool },
    /// These were not granted.
    Met(Vec<Row>),
}

async fn claim(
    link: &Link,
    work: &Work,
    groups: &[Group],
    places: &[usize],
) -> Result<Claimed, Trouble> {
    let request = |place: &usize| match work.first(&groups[*place]) {
        StoreRequest::Claim(request) => request,
        other => unreachable!("{other:?} is no claim"),
    };
    match places {
        [] => Ok(Claimed::Met(Vec::new())),
        [place] if !link.expects_duplicates() => claim_one(link, request(place)).await,
        places => {
            let requests: Vec<&ClaimRequest> = places.iter().map(request).collect();
            let met = claim_many(link, &requests).await?;
            link.expect_duplicates(2 * met.len() > places.len());
            Ok(Claimed::Met(met))
        }
    }
}

async fn claim_one(link: &Link, request: &ClaimRequest) -> Result<Claimed, Trouble> {
    let (terms, labels) = (&request.terms, request.labels.as_ref());
    let (key, fingerprint) =
        (request.key.as_bytes().as_slice(), request.fingerprint.as_bytes().as_slice());
    let made = link
        .execute(
            &link.statements.claim_one,
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
    link.expect_duplicates(made == 0);
    Ok(Claimed::One { granted: made == 1 })
}

async fn claim_many(link: &Link, requests: &[&ClaimRequest]) -> Result<Vec<Row>, Trouble> {
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
    link.query(&link.statements.claim_many, &params).await
}

/// When a claim expires whose owner never comes back. Under Hold it does not.
fn expires_after(request: &ClaimRequest) -> Option<i64> {
    let terms = &request.terms;
    match terms.on_lost_owner {
        OnLostOwner::Rerun => Some(span_to_sql(terms.lease) + span_to_sql(terms.retention)),
        OnLostOwner::Hold => None,
    }
}

fn settle_claims(
    work: &mut Work,
    groups: &mut [Group],
    places: &[usize],
    claimed: Result<Claimed, Trouble>,
) -> Result<(), Error> {
    let rows = match claimed {
        Ok(Claimed::One { granted: false }) => return Ok(()),
        Ok(Claimed::One { granted: true }) => Vec::new(),
        Ok(Claimed::Met(rows)) => rows,
        Err(trouble) => return fail(work, groups, places, trouble),
    };
    let mut met = vec![false; places.len()];
    for row in &rows {
        met[take_reading(work, groups, places, row)?] = true;
    }
    for (place, _) in places.iter().zip(met).filter(|(_, met)| !met) {
        let said = granted(work.first(&groups[*place]));
        work.answer(&mut groups[*place], said);
    }
    Ok(())
}

/// The answer to a claim that made its record.
fn granted(call: &StoreRequest) -> Option<StoreReply> {
    let StoreRequest::Claim(request) = call else { return None };
    let owner = Owner { key: request.key, nonce: request.nonce, token: 1 };
    let length = request.terms.lease.to_duration();
    Some(StoreReply::Claim(Claim::Granted(Lease { owner, attempt: 1, length, takeover: false })))
}

async fn complete(
    link: &Link,
    work: &Work,
    groups: &[Group],
    places: &[usize],
) -> Result<Vec<Row>, Trouble> {
    let request = |place: &usize| match work.first(&groups[*place]) {
        StoreRequest::Complete(request) => request,
        other => unreachable!("{other:?} is no completion"),
    };
    let requests: Vec<&CompleteRequest> = places.iter().map(request).collect();
    let packed: Vec<Packed> = requests.iter().map(|it| codec::pack(&it.outcome)).collect();
    let (keys, nonces, tokens) = owners(requests.iter().map(|request| &request.owner));
    let outcomes: Vec<Blob> = packed.iter().map(|packed| Blob(packed.bytes.clone())).collect();
    let formats: Vec<i16> = packed.iter().map(format_code).collect();
    let successes: Vec<bool> = requests.iter().map(|it| it.outcome.is_success()).collect();
    let params: [&(dyn ToSql + Sync); 6] =
        [&keys, &nonces, &tokens, &outcomes, &formats, &successes];
    link.query(&link.statements.complete, &params).await
}

fn settle_completes(
    bell: &Bell,
    work: &mut Work,
    groups: &mut [Group],
    places: &[usize],
    rows: Result<Vec<Row>, Trouble>,
) -> Result<(), Error> {
    let rows = match rows {
        Ok(rows) => rows,
        Err(trouble) => return fail(work, groups, places, trouble),
    };
    for row in &rows {
        let group = &mut groups[done(places, row)?];
        if row.try_get(1).unwrap_or(true) {
            bell.ring(work.key(group));
        }
        work.answer(group, [StoreReply::Complete(Completion::Recorded)]);
    }
    Ok(())
}

async fn renew(
    link: &Link,
    work: &Work,
    groups: &[Group],
    places: &[usize],
) -> Result<Vec<Row>, Trouble> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let request = |place: &usize| match work.first(&groups[*place]) {
        StoreRequest::Renew(request) => request,
        other => unreachable!("{other:?} is no renewal"),
    };
    let requests: Vec<&RenewRequest> = places.iter().map(request).collect();
    let (keys, nonces, tokens) = owners(requests.iter().map(|request| &request.owner));
    let max_run =
        |request: &&RenewRequest| span_to_sql(Span::from(request.max_run)).min(SANE_MILLIS);
    let max_runs: Vec<i64> = requests.iter().map(max_run).collect();
    let params: [&(dyn ToSql + Sync); 4] = [&keys, &nonces, &tokens, &max_runs];
    link.query(&link.statements.renew, &params).await
}

fn settle_renews(
    work: &mut Work,
    groups: &mut [Group],
    places: &[usize],
    rows: Result<Vec<Row>, Trouble>,
) -> Result<(), Error> {
    let rows = match rows {
        Ok(rows) => rows,
        Err(trouble) => return fail(work, groups, places, trouble),
    };
    for row in &rows {
        let group = &mut groups[done(places, row)?];
        work.answer(group, [StoreReply::Renew(Renewal::Extended)]);
    }
    Ok(())
}

type Owners<'a> = (Vec<&'a [u8]>, Vec<&'a [u8]>, Vec<i64>);

fn owners<'a>(owners: impl Iterator<Item = &'a Owner>) -> Owners<'a> {
    let (mut keys, mut nonces, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    for owner in owners {
        keys.push(owner.key.as_bytes().as_slice());
        nonces.push(owner.nonce.as_bytes().as_slice());
        tokens.push(owner.token.cast_signed());
    }
    (keys, nonces, tokens)
}

/// The group that a row speaks of by its place in the statement, counted from one.
fn done(places: &[usize], row: &Row) -> Result<usize, Error> {
    let place = row.try_get::<_, i64>(0).ok().and_then(|place| usize::try_from(place - 1).ok());
    place.and_then(|place| places.get(place).copied()).ok_or_else(unasked)
}

/// Puts what a row says to the group it speaks of, and returns which of `places` that is.
///
/// # Errors
///
/// The row speaks of a key that nobody asked for, or belongs to another: the connection is mixed up.
pub(crate) fn take_reading(
    work: &mut Work,
    groups: &mut [Group],
    places: &[usize],
    row: &Row,
) -> Result<usize, Error> {
    let (key, reading) = read(row)?;
    let at = |place: &usize| work.key(&groups[*place]).cmp(&key);
    let at = places.binary_search_by(at).map_err(|_| unasked())?;
    let group = &mut groups[places[at]];
    match reading {
        Ok(Reading::Found(found)) => group.found = Some(found),
        Ok(Reading::LeftOut) => group.heavy = true,
        Ok(Reading::Foreign(other)) => return Err(wrong_record(work, group, &other)),
        Err(error) => {
            tracing::error!(%key, %error, "postgres: a record cannot be read");
            work.fail(group, &error);
        }
    }
    Ok(at)
}

/// Who asked for the key is told so; the others may have been served before.
fn wrong_record(work: &mut Work, group: &mut Group, other: &KeyHash) -> Error {
    let subject = format!(
        "postgres: asked for {} and got {other}; the connection is dropped (check the table's indexes with amcheck)",
        work.key(group)
    );
    let error = Error::new(ErrorKind::Corrupt, subject);
    tracing::error!(%error, "postgres: an answer is another's");
    work.fail(group, &error);
    unasked()
}

fn unasked() -> Error {
    let subject =
        "postgres: an answer is for a key that nobody asked for; the connection is dropped";
    Error::new(ErrorKind::Unavailable, subject)
}

/// Answers the groups of a statement that failed. Of those that met a lock, one may be to blame: they go
/// on one by one, and back to their callers if that does not help.
///
/// # Errors
///
/// The connection is not to be used again.
pub(crate) fn fail(
    work: &mut Work,
    groups: &mut [Group],
    places: &[usize],
    trouble: Trouble,
) -> Result<(), Error> {
    let (error, lost) = match trouble {
        Trouble::Again(error) | Trouble::Said(error) => (error, false),
        Trouble::Lost(error) => (error, true),
        Trouble::Locked => {
            places.iter().for_each(|place| met_lock(work, &mut groups[*place]));
            return Ok(());
        }
    };
    places.iter().for_each(|place| work.fail(&mut groups[*place], &error));
    if lost { Err(error) } else { Ok(()) }
}

fn met_lock(work: &mut Work, group: &mut Group) {
    if std::mem::replace(&mut group.suspect, true) {
        work.give_back(group);
    }
}
