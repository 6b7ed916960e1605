//! The doctor's own checks, after those of the store itself.

use std::time::Duration;

use semel::{
    CachedBuilder, Finding, ListQuery, MemoryStore, Result, Stats, Store, StoreOptions, Timestamp,
};
use semel_service::settings::StoreConfig;

use crate::show;

/// A larger difference of clocks is a warning: operators compare the times of logs with those of records.
const SKEW: Duration = Duration::from_secs(2);
/// Up to this many keys, a scan of the whole server is quick.
const MANY: u64 = 100_000;
/// The memory limit of a cache, and the most outcomes that fit into it.
const MEBIBYTES: usize = CachedBuilder::<MemoryStore>::BYTES >> 20;
const MOST: usize = CachedBuilder::<MemoryStore>::BYTES / CachedBuilder::<MemoryStore>::ENTRY_BYTES;

pub(super) async fn run(config: &StoreConfig) -> Vec<Finding> {
    let options = StoreOptions { cache: None, migrate: false, ..config.options.clone() };
    let examined = config.url.examine(&options).await;
    let mut findings = examined.findings;
    let Some(store) = examined.store else {
        findings.extend([namespace(config), cache(config)]);
        return findings;
    };
    if !findings.iter().any(|it| it.what.contains("hash secret")) {
        findings.push(hash_secret(config));
    }
    findings.push(namespace(config));
    findings.push(cache(config));
    match store.stats().await {
        Ok(stats) if is_long_to_list(config, stats) => {
            findings.extend(held(config, stats));
            findings.push(not_listed());
            return findings;
        }
        Ok(stats) => findings.extend(held(config, stats)),
        Err(error) => findings.push(failed("count its records", &error)),
    }
    findings.extend(super::seals::check(config, &*store).await);
    match clocks(&*store).await {
        Ok(clocks) => findings.extend(clocks.map(|(ours, theirs)| skew(ours, theirs))),
        Err(error) => findings.push(failed("read a record", &error)),
    }
    findings
}

/// Without tables, listing one record scans all keys. A busy server must not be scanned only to read its clock.
const fn is_long_to_list(config: &StoreConfig, stats: Stats) -> bool {
    config.url.is_shared() && !config.url.has_tables() && stats.records > MANY
}

fn not_listed() -> Finding {
    Finding::warning(
        format!("clock and seals: not checked, since the server has more than {MANY} keys"),
        "`semel keys get HASH`, with the hash of a key from a log, shows whether one can be read",
    )
}

fn failed(what: &str, error: &semel::Error) -> Finding {
    Finding::bad(format!("cannot {what}: {error}"), "see the log of the server")
}

/// The store was opened, so its hash secret is the one in the settings.
fn hash_secret(config: &StoreConfig) -> Finding {
    Finding::good(match (&config.options.hash_secret, config.url.is_shared()) {
        (Some(_), _) => "hash secret: the one this store began with",
        (None, true) => "hash secret: none; this store began without one",
        (None, false) => "hash secret: the folder's own",
    })
}

fn namespace(config: &StoreConfig) -> Finding {
    match (&config.namespace, config.url.is_shared()) {
        (Some(name), _) => Finding::good(format!("namespace: {}", show::plain(name))),
        (None, false) => Finding::good("namespace: default; this store is not shared"),
        (None, true) => Finding::bad(
            "namespace: none, and other services may use this store",
            "name this service: --namespace NAME, SEMEL_NAMESPACE or namespace = \"NAME\" in semel.toml",
        ),
    }
}

fn cache(config: &StoreConfig) -> Finding {
    match config.options.cache {
        None if config.url.is_shared() => {
            Finding::good("cache: none; every replay is read from the server (--cache ENTRIES)")
        }
        None => Finding::good("cache: none, and none is needed"),
        Some(entries) if entries > MOST => Finding::warning(
            format!("cache: {entries} outcomes do not fit into the {MEBIBYTES} MiB it may take up"),
            format!("set {MOST} or fewer; the rest is never used"),
        ),
        Some(entries) => Finding::good(format!(
            "cache: {entries} outcomes in each process, within {MEBIBYTES} MiB"
        )),
    }
}

fn held(config: &StoreConfig, stats: Stats) -> Vec<Finding> {
    let Stats { records, unknown, dead } = stats;
    let of_others = match config.url.counts_foreign_keys() {
        true => " (this server counts the keys of other applications, too)",
        false => "",
    };
    let mut findings = vec![Finding::good(format!("records: {records}{of_others}"))];
    for (count, state) in [(unknown, "unknown"), (dead, "dead")] {
        if count > 0 {
            findings.push(Finding::warning(
                format!("{count} keys are {state} and wait for an operator"),
                format!("semel keys list --state {state}"),
            ));
        }
    }
    findings
}

/// This machine's time and the store's, which comes with a record: without one there is nothing to compare.
async fn clocks(store: &dyn Store) -> Result<Option<(Timestamp, Timestamp)>> {
    let first = ListQuery { limit: 1, ..ListQuery::default() };
    let Some(record) = store.list(&first).await?.pop() else { return Ok(None) };
    let sighting = store.get(&record.key).await?;
    Ok(sighting.map(|sighting| (show::now(), sighting.at)))
}

fn skew(ours: Timestamp, theirs: Timestamp) -> Finding {
    let apart = ours.since(theirs).max(theirs.since(ours));
    let which = if ours > theirs { "ahead of" } else { "behind" };
    if apart < SKEW {
        return Finding::good("clock: this machine and the store agree");
    }
    Finding::warning(
        format!("clock: this machine is {apart:?} {which} the store"),
        "synchronise both with NTP; leases use the store's clock, but logs and records will not match",
    )
}
