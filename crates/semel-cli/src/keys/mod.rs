//! `semel keys`: single keys, for operators.

mod forget;
mod get;
mod list;
mod name;

use std::process::ExitCode;

use clap::{ArgMatches, Subcommand};

use self::{forget::Forget, get::Get, list::List};
use crate::{store::operate, usage};

#[derive(Subcommand)]
pub(crate) enum Keys {
    /// Shows one key.
    #[command(after_help = usage::KEYS_GET)]
    Get(Box<Get>),
    /// Lists keys in the order of their hashes.
    #[command(after_help = usage::KEYS_LIST)]
    List(Box<List>),
    /// Deletes the record of a key: its next request runs as if it were the first.
    #[command(after_help = usage::KEYS_FORGET)]
    Forget(Box<Forget>),
}

impl Keys {
    pub(crate) async fn run(self, matches: &ArgMatches) -> ExitCode {
        match self {
            Self::Get(get) => operate(matches, async |config| get.run(config).await).await,
            Self::List(list) => operate(matches, async |config| list.run(config).await).await,
            Self::Forget(forget) => operate(matches, async |config| forget.run(config).await).await,
        }
    }
}
