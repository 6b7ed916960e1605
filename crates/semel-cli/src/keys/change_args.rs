//! The arguments of every command that changes a key.

use anyhow::{Result, bail};
use clap::Args;
use semel_service::settings::StoreFlags;

use super::key_selector::KeySelector;
use crate::store_command::UsageError;

/// Which key is changed, why, and in which store.
#[derive(Args, Debug)]
pub(super) struct ChangeArgs {
    #[command(flatten)]
    pub(super) key: KeySelector,
    /// Why, for the log on stderr
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Write JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl ChangeArgs {
    /// The reason that the operator gives for the change.
    pub(super) fn reason(&self) -> Result<&str> {
        if self.reason.trim().is_empty() {
            bail!(UsageError("--reason is empty; say why in a few words".to_owned()));
        }
        Ok(&self.reason)
    }
}
