//! Lists records in the order of their key hashes.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use semel_core::{KeyHash, ListQuery, Record, Result, State, steps::StoreRequest};
use semel_remote::readable_record;

use crate::store::RedisStoreInner;

/// Records that are read together.
const READ_TOGETHER: usize = 64;

/// How old the scan of the previous page may be.
const MAX_SCAN_AGE: Duration = Duration::from_secs(10);

/// The result of a scan of all keys: the first hashes, and whether there are more.
#[derive(Debug)]
struct KeyScan {
    hashes: BTreeSet<KeyHash>,
    more: bool,
    at: Instant,
}

/// The scan of the last page and the last key of that page. A query for the next page continues with it.
#[derive(Debug, Default)]
pub(crate) struct PreviousScan(Mutex<Option<(KeyHash, KeyScan)>>);

impl PreviousScan {
    fn keep(&self, last: KeyHash, mut scan: KeyScan) {
        scan.hashes.retain(|hash| *hash > last);
        *self.0.lock() = (!scan.hashes.is_empty()).then_some((last, scan));
    }

    fn take(&self, after: Option<KeyHash>) -> Option<KeyScan> {
        let continues = |(last, scan): &mut (KeyHash, KeyScan)| {
            Some(*last) == after && scan.at.elapsed() < MAX_SCAN_AGE
        };
        self.0.lock().take_if(continues).map(|(_, scan)| scan)
    }
}

/// A page of records. Unknown and Dead ones are found by their index, all others by a scan of all keys.
pub(crate) async fn list(inner: &RedisStoreInner, query: &ListQuery) -> Result<Vec<Record>> {
    let (mut page, mut after) = (Vec::new(), query.after);
    if query.limit == 0 {
        return Ok(page);
    }
    if let Some(State::Unknown | State::Dead) = query.state {
        read(inner, query, &stuck(inner, after).await?, &mut page).await?;
        return Ok(page);
    }
    loop {
        let scan = scan(inner, after).await?;
        after = scan.hashes.last().copied().or(after);
        read(inner, query, &scan.hashes, &mut page).await?;
        match page.last() {
            Some(last) if page.len() == query.limit => {
                inner.previous_scan.keep(last.key, scan);
                return Ok(page);
            }
            _ if !scan.more => return Ok(page),
            _ => {}
        }
    }
}

async fn scan(inner: &RedisStoreInner, after: Option<KeyHash>) -> Result<KeyScan> {
    if let Some(scan) = inner.previous_scan.take(after) {
        return Ok(scan);
    }
    let at = Instant::now();
    let (hashes, more) = inner.maintenance.hashes(after).await?;
    Ok(KeyScan { hashes, more, at })
}

async fn stuck(inner: &RedisStoreInner, after: Option<KeyHash>) -> Result<BTreeSet<KeyHash>> {
    let mut keys = inner.maintenance.members(inner.maintenance.stuck()).await?;
    keys.retain(|key| after.is_none_or(|after| *key > after));
    Ok(keys)
}

async fn read(
    inner: &RedisStoreInner,
    query: &ListQuery,
    hashes: &BTreeSet<KeyHash>,
    page: &mut Vec<Record>,
) -> Result<()> {
    let hashes: Vec<_> = hashes.iter().copied().collect();
    for group in hashes.chunks(READ_TOGETHER) {
        for reply in inner.call_all(group.iter().copied().map(StoreRequest::Get).collect()).await {
            let record = readable_record("redis", reply)?.filter(|record| query.matches(record));
            page.extend(record);
            if page.len() == query.limit {
                return Ok(());
            }
        }
    }
    Ok(())
}
