//! `semel keys forget`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use semel::{Forgetting, State};
use semel_service::settings::StoreConfig;
use serde_json::json;

use super::change_args::ChangeArgs;
use crate::{show, store_command::open_store};

#[derive(Args, Debug)]
pub(crate) struct ForgetCommand {
    #[command(flatten)]
    change: ChangeArgs,
}

impl ForgetCommand {
    pub(super) async fn run(&self, config: StoreConfig) -> Result<ExitCode> {
        let reason = self.change.reason()?;
        let engine = open_store(&config).await?;
        let key = self.change.key.find(&config, &engine).await?;
        match engine.forget(&key, reason).await? {
            Forgetting::Forgotten => {}
            Forgetting::Missing => bail!("there is no record of key {key}; nothing was changed"),
            Forgetting::Refused(state) => {
                bail!("key {key} is {}: {}; nothing was changed", show::state(state), why(state))
            }
        }
        let reason = show::plain(reason);
        Ok(crate::print(&match self.change.json {
            true => show::line(&json!({"key": key.to_hex(), "forgotten": true, "reason": reason})),
            false => format!("forgotten: {} ({reason}); its next request runs\n", key.to_hex()),
        }))
    }
}

const fn why(state: State) -> &'static str {
    match state {
        State::InProgress => {
            "its owner may still be at work; if it is lost, decide with `semel keys resolve`"
        }
        State::Unknown => {
            "it may have taken effect, and forgetting it could run it twice; find out whether it did, and decide \
             with `semel keys resolve`"
        }
        State::Open | State::Completed | State::Dead | State::Erased => "it cannot be forgotten",
    }
}
