//! `semel dead-letters discard`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use semel_service::settings::{DeadLetterFlags, DeadLettersConfig};
use semel_worker::open;
use serde_json::json;

use super::{checked_reason, find, open_letters};
use crate::show;

#[derive(Args, Debug)]
pub(crate) struct DiscardCommand {
    /// The id of the dead letter
    #[arg(value_name = "ID")]
    id: String,
    /// Why, for the log on stderr
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: DeadLetterFlags,
}

impl DiscardCommand {
    pub(super) async fn run(&self, config: DeadLettersConfig) -> Result<ExitCode> {
        let reason = checked_reason(&self.reason)?;
        let letters = open_letters(&config).await?;
        let letter = find(&*letters, &self.id).await?;
        if !open::discard(&*letters, &letter, reason).await? {
            bail!("the dead letter has changed meanwhile; nothing was removed");
        }
        let (id, reason) = (&letter.id, show::plain(reason));
        Ok(crate::print(&match self.json {
            true => show::line(&json!({"id": id, "discarded": true, "reason": reason})),
            false => format!("discarded: {id} ({reason}); its event is not processed\n"),
        }))
    }
}
