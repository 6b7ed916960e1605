//! Lists of records, in the order of their keys' hashes.

use semel_core::{KeyHash, ListQuery, Record, Result, State, steps::StoreRequest};
use semel_remote::readable_record;

use crate::{error::Trouble, store::Inner};

/// Records that are read together.
const READ: usize = 64;

/// A page of records. Stuck ones are found by the index, all others among all keys.
pub(crate) async fn list(inner: &Inner, query: &ListQuery) -> Result<Vec<Record>> {
    let mut page = Vec::new();
    if query.limit == 0 {
        return Ok(page);
    }
    let names = &inner.link.names;
    let filter = match query.state {
        Some(State::Unknown | State::Dead) => names.all_watched(),
        _ => names.all_records(),
    };
    let mut keys = keys(inner, &filter).await?;
    keys.retain(|key| query.after.is_none_or(|after| *key > after));
    for some in keys.chunks(READ) {
        for answer in inner.call_all(some.iter().copied().map(StoreRequest::Get).collect()).await {
            page.extend(readable_record("nats", answer)?.filter(|record| query.matches(record)));
            if page.len() == query.limit {
                return Ok(page);
            }
        }
    }
    Ok(page)
}

/// All keys whose subjects match, in their order.
pub(crate) async fn keys(inner: &Inner, filter: &str) -> Result<Vec<KeyHash>> {
    let subjects = inner.link.subjects(filter).await.map_err(Trouble::into_error)?;
    Ok(subjects.iter().filter_map(|subject| inner.link.names.hash_of(subject)).collect())
}
