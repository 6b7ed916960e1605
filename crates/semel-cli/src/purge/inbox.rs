//! `semel purge --inbox`: the maintenance that an inbox does itself, run by hand or by a scheduler.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use semel::inbox::{InboxMaintenance, InboxVariant, MaintenanceReport};
use semel_service::settings::StoreConfig;
use serde_json::json;

use crate::{show, store_command::UsageError};

/// What the maintenance of a table did.
pub(super) struct InboxPurgeReport {
    table: String,
    variant: InboxVariant,
    report: MaintenanceReport,
}

pub(super) async fn run_maintenance(
    config: &StoreConfig,
    table: &str,
    retention: Duration,
) -> Result<InboxPurgeReport> {
    if !config.url.has_tables() {
        bail!(UsageError(format!(
            "{} has no inbox; name the PostgreSQL that its table is in: --store postgres://USER@HOST/DATABASE",
            config.url
        )));
    }
    if retention < InboxMaintenance::RETENTION_AT_LEAST {
        bail!(UsageError(
            "--retention is shorter than a minute, and late copies of deleted events would run again; write how \
             long your sources may deliver an event again, such as 30d"
                .to_owned()
        ));
    }
    let refused = |error: semel::Error| anyhow!("{error} (--store, --inbox, --retention)");
    let maintenance = config.url.inbox(table, retention).await.map_err(refused)?;
    let report = maintenance.run().await.map_err(refused)?;
    Ok(InboxPurgeReport { table: maintenance.table(), variant: maintenance.variant(), report })
}

impl InboxPurgeReport {
    pub(super) fn json(&self) -> String {
        let MaintenanceReport { purged, made, dropped } = self.report;
        show::line(&json!({
            "table": self.table,
            "variant": format!("{:?}", self.variant).to_lowercase(),
            "deleted": purged,
            "partitions_dropped": dropped,
            "partitions_made": made,
        }))
    }

    pub(super) fn text(&self) -> String {
        let Self { table, report: MaintenanceReport { purged, made, dropped }, .. } = self;
        match self.variant {
            InboxVariant::Partitioned => {
                format!("dropped {dropped} partitions of {table}, and made {made}\n")
            }
            _ => format!("deleted {purged} events of {table}\n"),
        }
    }
}
