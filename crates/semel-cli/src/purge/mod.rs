//! `semel purge`: deletes expired records now.

mod inbox;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Args};
use semel::{Purged, Store};
use semel_service::settings::{CountValue, DurationValue, StoreConfig, StoreFlags};
use serde_json::json;

use crate::{
    show,
    store_command::{open_store, run_with_store},
};

#[derive(Args, Debug)]
pub(crate) struct PurgeCommand {
    /// The most records to delete [default: all that have expired]
    #[arg(long, value_name = "COUNT")]
    limit: Option<CountValue>,
    /// Maintain the table of an inbox instead: delete old events, drop old partitions, create the next ones
    #[arg(long, value_name = "[SCHEMA.]TABLE", requires = "retention", conflicts_with = "limit")]
    inbox: Option<String>,
    /// How long the inbox remembers an event: longer than any source may deliver it again
    #[arg(long, value_name = "TIME", requires = "inbox")]
    retention: Option<DurationValue>,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

/// Records per call: few enough not to block the store.
const BATCH: usize = 5_000;

impl PurgeCommand {
    pub(crate) async fn run(self, matches: &ArgMatches) -> ExitCode {
        run_with_store(matches, async |config| self.purge(config).await).await
    }

    async fn purge(&self, config: StoreConfig) -> Result<ExitCode> {
        if let (Some(table), Some(retention)) = (&self.inbox, self.retention) {
            let report = inbox::run_maintenance(&config, table, retention.0).await?;
            return Ok(crate::print(&if self.json { report.json() } else { report.text() }));
        }
        let engine = open_store(&config).await?;
        let limit = self.limit.map_or(usize::MAX, |it| it.0.get() as usize);
        let purged = purge_all(engine.store(), limit).await?;
        Ok(crate::print(&match self.json {
            true => show::line(&json!({"deleted": purged.deleted, "held": purged.held})),
            false => report(purged),
        }))
    }
}

async fn purge_all(store: &dyn Store, limit: usize) -> Result<Purged> {
    let mut sum = Purged::default();
    while sum.count() < limit {
        let batch = BATCH.min(limit - sum.count());
        let purged = store.purge(batch).await?;
        sum = Purged { deleted: sum.deleted + purged.deleted, held: sum.held + purged.held };
        if purged.count() < batch {
            break;
        }
        crate::complain(format_args!("{} records so far", sum.count()));
    }
    Ok(sum)
}

fn report(purged: Purged) -> String {
    let deleted = format!("deleted {} expired records\n", purged.deleted);
    match purged.held {
        0 => deleted,
        held => format!(
            "{deleted}{held} operations lost their owner and wait for an operator: semel keys list --state \
             unknown\n"
        ),
    }
}
