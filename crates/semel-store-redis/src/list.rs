//! Lists of records, in the order of their keys' hashes.

use std::collections::BTreeSet;

use semel_core::{KeyHash, ListQuery, Record, Result, State, remote::listed, steps::Call};

use crate::store::Inner;

/// Records that are read together.
const READ: usize = 64;

/// A page of records. Stuck ones are found by their index, all others among all keys.
pub(crate) async fn list(inner: &Inner, query: &ListQuery) -> Result<Vec<Record>> {
    let (mut page, mut after) = (Vec::new(), query.after);
    if query.limit == 0 {
        return Ok(page);
    }
    loop {
        let (hashes, more) = match query.state {
            Some(State::Unknown | State::Dead) => (stuck(inner, after).await?, false),
            _ => inner.chores.hashes(after).await?,
        };
        after = hashes.last().copied().or(after);
        read(inner, query, &hashes, &mut page).await?;
        if page.len() == query.limit || !more {
            return Ok(page);
        }
    }
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
        for answer in inner.call_all(some.iter().copied().map(Call::Get).collect()).await {
            let record = listed("redis", answer)?.filter(|record| query.matches(record));
            page.extend(record);
            if page.len() == query.limit {
                return Ok(());
            }
        }
    }
    Ok(())
}
