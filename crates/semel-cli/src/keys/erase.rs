//! `semel keys erase`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use semel::Erasure;
use semel_service::settings::{StoreConfig, StoreFlags};
use serde_json::json;

use super::{key_selector::KeySelector, reason::ReasonArg};
use crate::{show, store_command::open_store};

#[derive(Args, Debug)]
pub(crate) struct EraseCommand {
    #[command(flatten)]
    name: KeySelector,
    #[command(flatten)]
    reason: ReasonArg,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl EraseCommand {
    pub(super) async fn run(&self, config: StoreConfig) -> Result<ExitCode> {
        let reason = self.reason.text()?;
        let engine = open_store(&config).await?;
        let key = self.name.find(&config, &engine).await?;
        match engine.erase(&key, reason).await? {
            Erasure::Erased => {}
            Erasure::Missing => bail!("there is no record of key {key}; nothing was changed"),
        }
        let reason = show::plain(reason);
        Ok(crate::print(&match self.json {
            true => show::line(&json!({"key": key.to_hex(), "erased": true, "reason": reason})),
            false => format!(
                "erased: {} ({reason}); its requests get 410 for as long as an outcome is kept\n",
                key.to_hex()
            ),
        }))
    }
}
