//! `semel migrate`: creates or updates the tables of a store.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{ArgMatches, Args};
use semel::StoreUrl;
use semel_service::{
    settings::{StoreConfig, StoreFlags},
    store,
};
use serde_json::json;

use crate::{
    show,
    store_command::{UsageError, run_with_store},
};

#[derive(Args, Debug)]
pub(crate) struct MigrateCommand {
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl MigrateCommand {
    pub(crate) async fn run(self, matches: &ArgMatches) -> ExitCode {
        run_with_store(matches, async |config| self.migrate(config).await).await
    }

    async fn migrate(&self, config: StoreConfig) -> Result<ExitCode> {
        if !config.is_named {
            bail!(UsageError(NO_STORE.to_owned()));
        }
        let how = if self.dry_run { semel::Migrate::DryRun } else { semel::Migrate::Apply };
        let url = config.url.with_tables(&config.options).unwrap_or(&config.url);
        let steps = url.migrate(&config.options, how).await;
        let steps = steps.map_err(|error| store::refused(&error))?;
        let text = match self.json {
            true => show::line(&json!({
                "store": url.to_string(),
                "steps": steps,
                "applied": !self.dry_run && !steps.is_empty(),
            })),
            false => self.report(url, &steps),
        };
        Ok(crate::print(&text))
    }

    fn report(&self, url: &StoreUrl, steps: &[String]) -> String {
        if !url.has_tables() {
            return format!("{url} has no tables; there is nothing to migrate\n");
        }
        if steps.is_empty() {
            return format!("{url} is up to date\n");
        }
        let did = if self.dry_run { "would apply" } else { "applied" };
        steps.iter().map(|step| format!("{did} {step}\n")).collect()
    }
}

/// The store must be named: a pipeline that lost its variable must not pass.
const NO_STORE: &str =
    "no store: write --store postgres://…, or set SEMEL_STORE or the store of semel.toml";
