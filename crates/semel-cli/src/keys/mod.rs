//! `semel keys`: operators look at single keys and change them.

mod change_args;
mod erase;
mod forget;
mod get;
mod key_selector;
mod list;
mod outcome_args;
mod resolve;

use std::process::ExitCode;

use clap::{ArgMatches, Subcommand};

use self::{
    erase::EraseCommand, forget::ForgetCommand, get::GetCommand, list::ListCommand,
    resolve::ResolveCommand,
};
use crate::{store_command::run_with_store, usage};

#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// Shows one key.
    #[command(after_help = usage::KEYS_GET)]
    Get(Box<GetCommand>),
    /// Lists keys in the order of their hashes.
    #[command(after_help = usage::KEYS_LIST)]
    List(Box<ListCommand>),
    /// Deletes the record of a key: its next request runs as if it were the first.
    #[command(after_help = usage::KEYS_FORGET)]
    Forget(Box<ForgetCommand>),
    /// Resolves a key whose outcome is unknown, that is out of attempts, or whose owner was lost.
    #[command(after_help = usage::KEYS_RESOLVE)]
    Resolve(Box<ResolveCommand>),
    /// Removes the content of a record; the record still stops duplicates.
    #[command(after_help = usage::KEYS_ERASE)]
    Erase(Box<EraseCommand>),
}

impl KeysCommand {
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
