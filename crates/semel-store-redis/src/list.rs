//! Lists of records, in the order of their keys' hashes.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use semel_core::{KeyHash, ListQuery, Record, Result, State, steps::StoreRequest};
use semel_remote::readable_record;

use crate::store::Inner;

/// Records that are read together.
const READ: usize = 64;

/// How long ago all keys may have been walked through for the page before.
const FRESH: Duration = Duration::from_secs(10);

/// What was found when all keys were walked through: the first hashes, and whether there are more.
#[derive(Debug)]
struct Walk {
    hashes: BTreeSet<KeyHash>,
    more: bool,
    at: Instant,
}

/// The walk of the last page, and where that ended: who asks for the next one goes on with it.
#[derive(Debug, Default)]
pub(crate) struct Rest(Mutex<Option<(KeyHash, Walk)>>);

impl Rest {
    fn keep(&self, last: KeyHash, mut walk: Walk) {
        walk.hashes.retain(|hash| *hash > last);
        *self.0.lock() = (!walk.hashes.is_empty()).then_some((last, walk));
    }

    fn take(&self, after: Option<KeyHash>) -> Option<Walk> {
        let goes_on =
            |(last, walk): &mut (KeyHash, Walk)| Some(*last) == after && walk.at.elapsed() < FRESH;
        self.0.lock().take_if(goes_on).map(|(_, walk)| walk)
    }
}

/// A page of records. Stuck ones are found by their index, all others among all keys.
pub(crate) async fn list(inner: &Inner, query: &ListQuery) -> Result<Vec<Record>> {
    let (mut page, mut after) = (Vec::new(), query.after);
    if query.limit == 0 {
        return Ok(page);
    }
    if let Some(State::Unknown | State::Dead) = query.state {
        read(inner, query, &stuck(inner, after).await?, &mut page).await?;
        return Ok(page);
    }
    loop {
        let walk = walk(inner, after).await?;
        after = walk.hashes.last().copied().or(after);
        read(inner, query, &walk.hashes, &mut page).await?;
        match page.last() {
            Some(last) if page.len() == query.limit => {
                inner.rest.keep(last.key, walk);
                return Ok(page);
            }
            _ if !walk.more => return Ok(page),
            _ => {}
        }
    }
}

async fn walk(inner: &Inner, after: Option<KeyHash>) -> Result<Walk> {
    if let Some(rest) = inner.rest.take(after) {
        return Ok(rest);
    }
    let at = Instant::now();
    let (hashes, more) = inner.chores.hashes(after).await?;
    Ok(Walk { hashes, more, at })
}

async fn stuck(inner: &Inner, after: Option<KeyHash>) -> Result<BTreeSet<KeyHash>> {
    let mut keys = inner.chores.members(inner.chores.stuck()).await?;
    keys.retain(|key| after.is_none_or(|after| *key > after));
    Ok(keys)
}

async fn read(
    inner: &Inner,
    query: &ListQuery,
    hashes: &BTreeSet<KeyHash>,
    page: &mut Vec<Record>,
) -> Result<()> {
    let hashes: Vec<_> = hashes.iter().copied().collect();
    for some in hashes.chunks(READ) {
        for answer in inner.call_all(some.iter().copied().map(StoreRequest::Get).collect()).await {
            let record = readable_record("redis", answer)?.filter(|record| query.matches(record));
            page.extend(record);
            if page.len() == query.limit {
                return Ok(());
            }
        }
    }
    Ok(())
}
