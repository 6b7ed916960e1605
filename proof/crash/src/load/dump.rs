//! Reads every record of the store at the end of a run, in a process that took no part in it.

use anyhow::Result;
use semel_core::{ListQuery, Record, State, Store};
use serde::{Deserialize, Serialize};

use super::{names::KeyNames, outcome::describe};
use crate::{
    clock::mono,
    event::{Detail, Hex, ReplyKind},
    process::die_with_parent,
    stores,
};

/// One record of the final dump.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DumpedRecord {
    /// When it was read, by [`mono`](crate::mono).
    pub t_mono: u64,
    /// The record; [`Detail::reply`] is its state.
    #[serde(flatten)]
    pub record: Detail,
}

/// Prints every record of a namespace, one JSON line each.
///
/// # Errors
///
/// When the store cannot be read.
pub fn dump(store: &str, namespace: &str, keys: u32) -> Result<()> {
    die_with_parent()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = stores::open_patiently(store).await?;
        let names = KeyNames::of(0..keys, namespace, &*store)?;
        each(&*store, namespace, &names, |record| {
            let line = serde_json::to_string(&DumpedRecord { t_mono: mono(), record });
            println!("{}", line.expect("a record has a JSON form"));
        })
        .await
    })
}

/// Calls `show` for every record of a namespace.
pub(super) async fn each(
    store: &dyn Store,
    namespace: &str,
    names: &KeyNames,
    show: impl Fn(Detail),
) -> Result<()> {
    let namespace = Some(namespace.to_owned());
    let mut query = ListQuery { namespace, limit: 500, ..ListQuery::default() };
    loop {
        let page = store.list(&query).await?;
        let Some(last) = page.last() else { return Ok(()) };
        query.after = Some(last.key);
        page.iter().for_each(|record| show(describe_record(record, names)));
    }
}

pub(super) fn describe_record(record: &Record, names: &KeyNames) -> Detail {
    let outcome = record.outcome.as_ref().map(|outcome| describe(outcome)).unwrap_or_default();
    Detail {
        key: names.key(&record.key),
        fingerprint: record.fingerprint.and_then(|fingerprint| names.payload(&fingerprint)),
        nonce: record.nonce.map(|nonce| Hex::of(nonce.as_bytes())),
        token: Some(record.token),
        attempt: Some(record.attempts),
        reply: Some(state(record.state)),
        ..outcome
    }
}

const fn state(state: State) -> ReplyKind {
    match state {
        State::Open => ReplyKind::Open,
        State::InProgress => ReplyKind::InProgress,
        State::Completed => ReplyKind::Completed,
        State::Unknown => ReplyKind::Unknown,
        State::Dead => ReplyKind::Dead,
        State::Erased => ReplyKind::Erased,
    }
}
