//! Lists records in the order of their key hashes.

use semel_core::{KeyHash, ListQuery, Record, Result, State, steps::StoreRequest};
use semel_remote::readable_record;

use crate::{error::RequestError, store::NatsStoreInner};

/// Records that are read together.
const READ_TOGETHER: usize = 64;

/// A page of records. Unknown and Dead ones are found by the index, all others by their subjects.
pub(crate) async fn list(inner: &NatsStoreInner, query: &ListQuery) -> Result<Vec<Record>> {
    let mut page = Vec::new();
    if query.limit == 0 {
        return Ok(page);
    }
    let names = &inner.bucket.names;
    let filter = match query.state {
        Some(State::Unknown | State::Dead) => names.all_index_entries(),
        _ => names.all_records(),
    };
    let mut keys = keys(inner, &filter).await?;
    keys.retain(|key| query.after.is_none_or(|after| *key > after));
    for group in keys.chunks(READ_TOGETHER) {
        for reply in inner.call_all(group.iter().copied().map(StoreRequest::Get).collect()).await {
            page.extend(readable_record("nats", reply)?.filter(|record| query.matches(record)));
            if page.len() == query.limit {
                return Ok(page);
            }
        }
    }
    Ok(page)
}

/// All keys whose subjects match, sorted.
pub(crate) async fn keys(inner: &NatsStoreInner, filter: &str) -> Result<Vec<KeyHash>> {
    let subjects = inner.bucket.subjects(filter).await.map_err(RequestError::into_error)?;
    Ok(subjects.iter().filter_map(|subject| inner.bucket.names.hash_of(subject)).collect())
}
