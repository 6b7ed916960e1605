//! `semel keys get`.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use semel_service::settings::{StoreConfig, StoreFlags};

use super::key_selector::KeySelector;
use crate::{show, store_command::open_store};

#[derive(Args, Debug)]
pub(crate) struct GetCommand {
    #[command(flatten)]
    name: KeySelector,
    /// Show the recorded outcome, too; it may hold personal data
    #[arg(long)]
    show_outcome: bool,
    /// Show the downstream key that the service derived with this label, too; may be repeated
    #[arg(long, value_name = "LABEL")]
    derive: Vec<String>,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl GetCommand {
    pub(super) async fn run(&self, config: StoreConfig) -> Result<ExitCode> {
        let engine = open_store(&config).await?;
        let key = self.name.find(&config, &engine).await?;
        let Some(sighting) = engine.store().get(&key).await? else {
            return Err(anyhow!(
                "there is no record of key {key}: it was never claimed, or has expired"
            ));
        };
        let options = show::ShowOptions { outcome: self.show_outcome, derived: &self.derive };
        Ok(crate::print(&match self.json {
            true => show::line(&show::json(&sighting.record, sighting.at, options)),
            false => show::details(&sighting.record, sighting.at, options),
        }))
    }
}
