//! `semel keys`: single keys, for operators.

mod answer;
mod erase;
mod forget;
mod get;
mod list;
mod name;
mod reason;
mod resolve;

use std::process::ExitCode;

use clap::{ArgMatches, Subcommand};

use self::{erase::Erase, forget::Forget, get::Get, list::List, resolve::Resolve};
use crate::{store_command::run_with_store, usage};

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
    /// Decides about a key whose outcome is unknown, that is out of attempts, or whose owner was lost.
    #[command(after_help = usage::KEYS_RESOLVE)]
    Resolve(Box<Resolve>),
    /// Drops what a record holds; what is left of it still stops duplicates.
    #[command(after_help = usage::KEYS_ERASE)]
    Erase(Box<Erase>),
}

impl Keys {
    pub(crate) async fn run(self, matches: &ArgMatches) -> ExitCode {
        match self {
            Self::Get(get) => run_with_store(matches, async |config| get.run(config).await).await,
            Self::List(list) => {
                run_with_store(matches, async |config| list.run(config).await).await
            }
            Self::Forget(forget) => {
                run_with_store(matches, async |config| forget.run(config).await).await
            }
            Self::Resolve(resolve) => {
                run_with_store(matches, async |config| resolve.run(config).await).await
            }
            Self::Erase(erase) => {
                run_with_store(matches, async |config| erase.run(config).await).await
            }
        }
    }
}
