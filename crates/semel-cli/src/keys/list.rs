//! `semel keys list`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use semel::{KeyHash, ListQuery, Record, State, Store, Timestamp};
use semel_service::settings::{CountValue, StoreConfig, StoreFlags};

use crate::{
    show::{self, TextTable},
    store_command::{UsageError, open_store},
};

#[derive(Args, Debug)]
pub(crate) struct ListCommand {
    /// Only keys in this state
    #[arg(long, value_name = "STATE")]
    state: Option<StateFilter>,
    /// The most keys to list
    #[arg(long, value_name = "COUNT", default_value = "100")]
    limit: CountValue,
    /// Start after this key: all 64 digits of its hash
    #[arg(long, value_name = "HASH")]
    after: Option<String>,
    /// List the keys of every namespace, even if --namespace or semel.toml names one
    #[arg(long)]
    all_namespaces: bool,
    /// Write JSON, one line for each key
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

/// The states that a list can be filtered by, as they are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StateFilter {
    Open,
    InProgress,
    /// In progress, but the owner's lease is over
    LostOwner,
    Completed,
    Unknown,
    Dead,
    Erased,
}

/// Records per page. They are read with their outcomes, so that a page must not be large.
const PAGE: usize = 500;

impl ListCommand {
    pub(super) async fn run(&self, config: StoreConfig) -> Result<ExitCode> {
        let limit = self.limit.0.get() as usize;
        let query = ListQuery {
            state: self.state.map(StateFilter::state),
            namespace: config.namespace.clone().filter(|_| !self.all_namespaces),
            after: self.after()?,
            limit,
        };
        let engine = open_store(&config).await?;
        let mut listed = Listed::new(self.json);
        let only_lost = matches!(self.state, Some(StateFilter::LostOwner));
        // There may be many other records between two lost owners.
        let page = if only_lost { PAGE } else { limit.min(PAGE) };
        let last = each(engine.store(), query, page, |record, now| {
            let is_wanted = !only_lost || show::is_owner_lost(record, now);
            if is_wanted {
                listed.add(record, now);
            }
            is_wanted
        })
        .await?;
        let code = listed.print();
        if self.hides_sealed(&config, engine.store()).await? {
            crate::complain(format_args!(
                "sealed keys are left out: only the seal keys show their namespace (--seal-keys FILE, or \
                 --all-namespaces)"
            ));
        }
        if let Some(last) = last {
            crate::complain(format_args!(
                "there may be more; continue with --after {}",
                last.to_hex()
            ));
        }
        Ok(code)
    }

    fn after(&self) -> Result<Option<KeyHash>> {
        let Some(text) = &self.after else { return Ok(None) };
        match super::key_selector::hash(text) {
            Some(key) => Ok(Some(key)),
            None => bail!(UsageError("--after is no hash; write all 64 hex digits".to_owned())),
        }
    }

    /// True when the list is for one namespace, and sealed records do not show theirs.
    async fn hides_sealed(&self, config: &StoreConfig, store: &dyn Store) -> Result<bool> {
        if config.namespace.is_none() || self.all_namespaces || config.options.seal.is_some() {
            return Ok(false);
        }
        let state = self.state.map(StateFilter::state);
        let some = store.list(&ListQuery { state, limit: 20, ..ListQuery::default() }).await?;
        Ok(some.iter().any(|record| show::sealed_with(record).is_some()))
    }
}

/// Calls `show` with every record that `query` selects, in pages of at most `limit`. Records for which `show` returns
/// false do not count. Returns the last key if the list ended at the limit of `query`.
async fn each(
    store: &dyn Store,
    query: ListQuery,
    limit: usize,
    mut show: impl FnMut(&Record, Timestamp) -> bool,
) -> Result<Option<KeyHash>> {
    let (mut left, mut after) = (query.limit, query.after);
    while left > 0 {
        let page = store.list(&ListQuery { after, limit, ..query.clone() }).await?;
        let now = store_time(store, &page).await?;
        let is_last_page = page.len() < limit;
        for (at, record) in page.iter().enumerate() {
            left -= usize::from(show(record, now));
            if left == 0 {
                let is_end = is_last_page && at + 1 == page.len();
                return Ok((!is_end).then_some(record.key));
            }
        }
        if is_last_page {
            return Ok(None);
        }
        after = page.last().map(|record| record.key);
    }
    Ok(after)
}

/// The store's time if a record of `page` has a lease to compare with it, otherwise this machine's.
async fn store_time(store: &dyn Store, page: &[Record]) -> Result<Timestamp> {
    for record in page.iter().filter(|record| record.state == State::InProgress) {
        if let Some(sighting) = store.get(&record.key).await? {
            return Ok(sighting.at);
        }
    }
    Ok(show::now())
}

/// The records listed so far.
enum Listed {
    Json(String),
    Table(TextTable),
}

impl Listed {
    fn new(json: bool) -> Self {
        if json {
            return Self::Json(String::new());
        }
        let head = [
            "KEY",
            "STATE",
            "RUNS",
            "CREATED",
            "EXPIRES",
            "NAMESPACE",
            "PRINCIPAL",
            "OPERATION",
            "ID",
        ];
        Self::Table(TextTable::new(&head))
    }

    fn add(&mut self, record: &Record, now: Timestamp) {
        let shown = show::ShowOptions { outcome: false, derived: &[] };
        match self {
            Self::Json(text) => *text += &show::line(&show::json(record, now, shown)),
            Self::Table(table) => table.row(row(record, now)),
        }
    }

    fn print(self) -> ExitCode {
        crate::print(&match self {
            Self::Json(text) => text,
            Self::Table(table) => table.to_string(),
        })
    }
}

fn row(record: &Record, now: Timestamp) -> [String; 9] {
    let labels = show::clear_labels(record);
    let none = if show::sealed_with(record).is_some() { "(sealed)" } else { "-" };
    let label = |it: Option<&str>| it.unwrap_or(none).to_owned();
    [
        record.key.to_string(),
        show::state_now(record, now).to_owned(),
        record.attempts.to_string(),
        show::both(record.created_at, now),
        record.expires_at.map_or_else(|| "never".to_owned(), |at| show::ago(at, now)),
        label(labels.map(|it| it.namespace())),
        labels.map_or_else(|| none.to_owned(), |it| show::or_anonymous(it.principal())),
        label(labels.map(|it| it.operation())),
        label(labels.map(|it| it.id())),
    ]
}

impl StateFilter {
    const fn state(self) -> State {
        match self {
            Self::Open => State::Open,
            Self::InProgress | Self::LostOwner => State::InProgress,
            Self::Completed => State::Completed,
            Self::Unknown => State::Unknown,
            Self::Dead => State::Dead,
            Self::Erased => State::Erased,
        }
    }
}

#[cfg(test)]
mod tests {
    use semel::{ClaimRequest, Fingerprint, MemoryStore, Nonce, Policy};

    use super::*;

    /// With a page of one record, each record that is left out would cost a round trip.
    #[tokio::test]
    async fn a_filtered_list_ends_at_its_limit_and_says_where() {
        let store = MemoryStore::new();
        let key = |number: u8| KeyHash::from_bytes([number; 32]);
        for number in 0..10 {
            let request = ClaimRequest {
                key: key(number),
                fingerprint: Fingerprint::of_bytes(b"x"),
                nonce: Nonce::random(),
                terms: Policy::api().terms(),
                labels: None,
            };
            store.claim(&request).await.unwrap();
        }
        let listed = async |limit: usize, page: usize, wanted: &[u8]| {
            let (mut read, mut shown) = (0, 0);
            let query = ListQuery { limit, ..ListQuery::default() };
            let last = each(&store, query, page, |record, _| {
                read += 1;
                let is_wanted = wanted.iter().any(|number| key(*number) == record.key);
                shown += usize::from(is_wanted);
                is_wanted
            });
            let last = last.await.unwrap();
            (shown, read, last)
        };
        for page in [1, 4, 10, 500] {
            assert_eq!(listed(1, page, &[6, 8]).await, (1, 7, Some(key(6))), "{page}");
            assert_eq!(listed(3, page, &[6, 8]).await, (2, 10, None), "{page}");
        }
        assert_eq!(listed(2, 500, &[6, 9]).await, (2, 10, None), "there is no more");
    }
}
