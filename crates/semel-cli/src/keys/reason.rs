//! Why an operator changes a key.

use anyhow::{Result, bail};
use clap::Args;

use crate::store_command::UsageError;

#[derive(Args, Debug)]
pub(super) struct ReasonArg {
    /// Why, for the log on stderr
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl ReasonArg {
    pub(super) fn text(&self) -> Result<&str> {
        if self.reason.trim().is_empty() {
            bail!(UsageError("--reason is empty; say why in a few words".to_owned()));
        }
        Ok(&self.reason)
    }
}
