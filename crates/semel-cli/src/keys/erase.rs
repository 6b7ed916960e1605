//! `semel keys erase`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use semel::Erasure;
use semel_service::settings::StoreConfig;
use serde_json::json;

use super::change_args::ChangeArgs;
use crate::{show, store_command::open_store};

#[derive(Args, Debug)]
pub(crate) struct EraseCommand {
    #[command(flatten)]
    change: ChangeArgs,
}

impl EraseCommand {
    pub(super) async fn run(&self, config: StoreConfig) -> Result<ExitCode> {
        let reason = self.change.reason()?;
        let engine = open_store(&config).await?;
        let key = self.change.key.find(&config, &engine).await?;
        match engine.erase(&key, reason).await? {
            Erasure::Erased => {}
            Erasure::Missing => bail!("there is no record of key {key}; nothing was changed"),
        }
        let reason = show::plain(reason);
        Ok(crate::print(&match self.change.json {
            true => show::line(&json!({"key": key.to_hex(), "erased": true, "reason": reason})),
            false => format!(
                "erased: {} ({reason}); its requests get 410 until the retention ends\n",
                key.to_hex()
            ),
        }))
    }
}
