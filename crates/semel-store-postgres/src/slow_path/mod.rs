//! A batch, from calls to answers: the first trip decides most, and the steps decide the rest.
//!
//! Read, run the step, and write only over the very version that was read. Whoever lost the race reads
//! again.

pub(crate) mod decide;

use std::collections::HashSet;

use futures_util::future::join_all;
use semel_core::{Error, KeyHash};
use tokio_postgres::{Row, types::ToSql};

use crate::{
    batch::{Group, Work},
    change_feed::Bell,
    connection::prepared::Link,
    error::{Trouble, contended},
    fast_path::{HEAVY_BYTES, fail, first_trip, take_reading},
    locks::locked,
    slow_path::decide::{Chain, Waited, Write, chain},
    value::{Arrays, Draft, columns},
};

/// How often a key is read again after a lost race.
const ROUNDS: usize = 16;

/// Records that one statement reads at most.
const READ_AT_ONCE: usize = 500;

/// Answers the calls of a batch.
///
/// # Errors
///
/// The connection is not to be used again. What is not answered may have happened.
pub(crate) async fn run(
    link: &Link,
    bell: &Bell,
    work: &mut Work,
    mut groups: Vec<Group>,
) -> Result<(), Error> {
    first_trip(link, bell, work, &mut groups).await?;
    for _ in 0..ROUNDS {
        groups.retain(|group| !group.is_done());
        if groups.is_empty() {
            return Ok(());
        }
        read_missing(link, work, &mut groups).await?;
        write(link, bell, work, &mut groups).await?;
    }
    for group in &mut groups {
        match group.suspect {
            true => work.give_back(group),
            false => work.fail(group, &contended()),
        }
    }
    Ok(())
}

/// Reads the records of groups that have none.
async fn read_missing(link: &Link, work: &mut Work, groups: &mut [Group]) -> Result<(), Error> {
    let statements = &link.statements;
    let missing = |group: &Group| group.found.is_none() && !group.is_done();
    let light = places(groups, |group| missing(group) && !group.heavy);
    for places in light.chunks(READ_AT_ONCE) {
        let rows = link.query(&statements.read, &[&keys(work, groups, places)]).await;
        take_readings(work, groups, places, rows)?;
    }
    for place in places(groups, |group| missing(group) && group.heavy) {
        let places = [place];
        let rows = link.query(&statements.read_heavy, &[&keys(work, groups, &places)]).await;
        take_readings(work, groups, &places, rows)?;
    }
    Ok(())
}

fn places(groups: &[Group], wanted: impl Fn(&Group) -> bool) -> Vec<usize> {
    groups.iter().enumerate().filter(|(_, group)| wanted(group)).map(|(place, _)| place).collect()
}

fn keys<'a>(work: &'a Work, groups: &[Group], places: &[usize]) -> Vec<&'a [u8]> {
    places.iter().map(|place| work.key(&groups[*place]).as_bytes().as_slice()).collect()
}

fn take_readings(
    work: &mut Work,
    groups: &mut [Group],
    places: &[usize],
    rows: Result<Vec<Row>, Trouble>,
) -> Result<(), Error> {
    match rows {
        Ok(rows) => {
            rows.iter().try_for_each(|row| take_reading(work, groups, places, row).map(drop))
        }
        Err(trouble) => fail(work, groups, places, trouble),
    }
}

/// What has to be written for a group, and where that is.
struct Plan {
    place: usize,
    chain: Chain,
}

/// Runs the steps, answers what changes nothing, and writes the rest.
async fn write(
    link: &Link,
    bell: &Bell,
    work: &mut Work,
    groups: &mut [Group],
) -> Result<(), Error> {
    let mut plans = Vec::new();
    for (place, group) in groups.iter_mut().enumerate() {
        let Some(found) = group.found.take() else { continue };
        let chain = chain(work.calls(group), &found);
        match chain.write {
            Write::Nothing => work.answer(group, chain.said),
            _ => plans.push(Plan { place, chain }),
        }
    }
    let plans = without_locked(link, work, groups, plans).await?;
    let statements = statements(plans);
    let written = join_all(statements.iter().map(|plans| write_all(link, plans))).await;
    let mut trip = Ok(());
    for (plans, written) in statements.into_iter().zip(written) {
        trip = settle(bell, work, groups, plans, written).and(trip);
    }
    trip
}

/// Takes out what somebody else has locked, so that the others need not wait for it.
async fn without_locked(
    link: &Link,
    work: &mut Work,
    groups: &mut [Group],
    mut plans: Vec<Plan>,
) -> Result<Vec<Plan>, Error> {
    let suspects: Vec<&Plan> = plans.iter().filter(|plan| groups[plan.place].suspect).collect();
    if suspects.is_empty() {
        return Ok(plans);
    }
    let places: Vec<usize> = suspects.iter().map(|plan| plan.place).collect();
    let key = |plan: &&Plan| *work.key(&groups[plan.place]);
    let absent = |plan: &&Plan| matches!(plan.chain.write, Write::Insert(_));
    let (absent, present): (Vec<&Plan>, Vec<&Plan>) = suspects.into_iter().partition(absent);
    let absent: Vec<KeyHash> = absent.iter().map(key).collect();
    let present: Vec<KeyHash> = present.iter().map(key).collect();
    let locked = match locked(link, &present, &absent).await {
        Ok(locked) => locked,
        Err(Trouble::Locked) => absent.into_iter().chain(present).collect(),
        Err(trouble) => {
            fail(work, groups, &places, trouble)?;
            plans.retain(|plan| !groups[plan.place].is_done());
            return Ok(plans);
        }
    };
    let is_locked = |plan: &Plan| locked.contains(work.key(&groups[plan.place]));
    let (held, free): (Vec<Plan>, Vec<Plan>) = plans.into_iter().partition(is_locked);
    held.into_iter().for_each(|plan| set_aside(work, groups, plan));
    Ok(free)
}

/// Ends a plan whose record somebody else has locked. That somebody waits is only noted if it can be: who
/// waits polls.
fn set_aside(work: &mut Work, groups: &mut [Group], Plan { place, chain }: Plan) {
    let group = &mut groups[place];
    match chain.write {
        Write::Mark(..) => work.answer(group, chain.said),
        Write::Nothing | Write::Insert(_) | Write::Update(..) | Write::Delete(..) => {
            work.give_back(group);
        }
    }
}

/// Plans that one statement writes: of one kind, and not too large.
fn statements(plans: Vec<Plan>) -> Vec<Vec<Plan>> {
    let (mut statements, mut bytes): (Vec<Vec<Plan>>, usize) = (Vec::new(), 0);
    let kind = |plan: &Plan| std::mem::discriminant(&plan.chain.write);
    let mut plans: Vec<Plan> = plans;
    // Stable: within a kind they stay in the order of their keys.
    plans.sort_by_key(|plan| rank(&plan.chain.write));
    for plan in plans {
        let size = size(&plan.chain.write);
        bytes += size;
        match statements.last_mut() {
            Some(last) if kind(&last[0]) == kind(&plan) && bytes <= HEAVY_BYTES => last.push(plan),
            _ => {
                bytes = size;
                statements.push(vec![plan]);
            }
        }
    }
    statements
}

const fn rank(write: &Write) -> u8 {
    match write {
        Write::Nothing => 0,
        Write::Insert(_) => 1,
        Write::Update(..) => 2,
        Write::Delete(..) => 3,
        Write::Mark(..) => 4,
    }
}

fn size(write: &Write) -> usize {
    match write {
        Write::Insert(record) | Write::Update(record, ..) => record.size(),
        Write::Nothing | Write::Delete(..) | Write::Mark(..) => 0,
    }
}

/// Writes plans of one kind, and returns the keys for which that came true.
async fn write_all(link: &Link, plans: &[Plan]) -> Result<Vec<Row>, Trouble> {
    let statements = &link.statements;
    let (mut drafts, mut versions, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    let mut statement = &statements.mark;
    for plan in plans {
        match &plan.chain.write {
            Write::Nothing => {}
            Write::Insert(record) => {
                statement = &statements.insert;
                drafts.push(Draft::new(record, Waited::No));
            }
            Write::Update(record, version, waited) => {
                statement = &statements.update;
                drafts.push(Draft::new(record, *waited));
                versions.push(*version);
            }
            Write::Delete(key, version) => {
                statement = &statements.delete;
                keys.push(key.as_bytes().as_slice());
                versions.push(*version);
            }
            Write::Mark(key, version) => {
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
    link.query(statement, &params).await
}

/// One of these records is locked; which one, the next round finds out.
fn met_lock(work: &mut Work, groups: &mut [Group], plans: Vec<Plan>) {
    let alone = plans.len() == 1;
    for plan in plans {
        if alone || matches!(plan.chain.write, Write::Mark(..)) {
            set_aside(work, groups, plan);
        } else {
            groups[plan.place].suspect = true;
        }
    }
}

/// Answers those whose write came true. The others read again in the next round.
fn settle(
    bell: &Bell,
    work: &mut Work,
    groups: &mut [Group],
    plans: Vec<Plan>,
    written: Result<Vec<Row>, Trouble>,
) -> Result<(), Error> {
    let rows = match written {
        Ok(rows) => rows,
        Err(Trouble::Locked) => {
            met_lock(work, groups, plans);
            return Ok(());
        }
        Err(trouble) => {
            let places: Vec<usize> = plans.iter().map(|plan| plan.place).collect();
            return fail(work, groups, &places, trouble);
        }
    };
    let won: HashSet<&[u8]> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
    for Plan { place, chain } in plans {
        let key: KeyHash = *work.key(&groups[place]);
        if won.contains(key.as_bytes().as_slice()) {
            work.answer(&mut groups[place], chain.said);
            if chain.ring {
                bell.ring(&key);
            }
        }
    }
    Ok(())
}
