//! `semel keys forget`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use semel::{Forgetting, State};
use serde_json::json;

use super::name::Name;
use crate::{
    settings::{StoreConfig, StoreFlags},
    show,
    store::Usage,
};

#[derive(Args, Debug)]
pub(crate) struct Forget {
    #[command(flatten)]
    name: Name,
    /// Why, for the log on stderr
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl Forget {
    pub(super) async fn run(&self, config: StoreConfig) -> Result<ExitCode> {
        if self.reason.trim().is_empty() {
            bail!(Usage("--reason is empty; say why in a few words".to_owned()));
        }
        let engine = config.open().await?;
        let Some(key) = self.name.exact(&config, &engine)? else {
            bail!(Usage("a part of a hash may mean another key; write all 64 digits".to_owned()));
        };
        match engine.forget(&key, &self.reason).await? {
            Forgetting::Forgotten => {}
            Forgetting::Missing => bail!("there is no record of key {key}; nothing was changed"),
            Forgetting::Refused(state) => {
                bail!("key {key} is {}: {}; nothing was changed", show::state(state), why(state))
            }
        }
        let reason = show::plain(&self.reason);
        Ok(crate::print(&match self.json {
            true => show::line(&json!({"key": key.to_hex(), "forgotten": true, "reason": reason})),
            false => format!("forgotten: {} ({reason}); its next request runs\n", key.to_hex()),
        }))
    }
}

const fn why(state: State) -> &'static str {
    match state {
        State::InProgress => "somebody may be at work on it; wait until its lease is over",
        State::Unknown => "it may have happened, and forgetting it could run it twice",
        State::Open | State::Completed | State::Dead | State::Erased => "it cannot be forgotten",
    }
}
