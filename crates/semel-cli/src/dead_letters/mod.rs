//! `semel dead-letters`: operators look at messages that were not processed, and publish them again.

mod discard;
mod list;
mod redrive;
mod show_letter;

use std::{process::ExitCode, sync::Arc};

use anyhow::{Result, bail};
use clap::{ArgMatches, Subcommand};
use semel_consumer::dead_letter::{DeadLetter, DeadLetterQueue};
use semel_service::{
    settings::{self, DeadLettersConfig},
    telemetry,
};
use semel_worker::open::{self, OnMissing};

use self::{
    discard::DiscardCommand, list::ListCommand, redrive::RedriveCommand, show_letter::ShowCommand,
};
use crate::{
    store_command::{UsageError, exit_code},
    usage,
};

#[derive(Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// Lists dead letters, the oldest first.
    #[command(after_help = usage::LETTERS_LIST)]
    List(Box<ListCommand>),
    /// Shows one dead letter with its message.
    #[command(after_help = usage::LETTERS_SHOW)]
    Show(Box<ShowCommand>),
    /// Publishes the messages of dead letters again, so that they are processed.
    #[command(after_help = usage::LETTERS_REDRIVE)]
    Redrive(Box<RedriveCommand>),
    /// Removes a dead letter without publishing its message.
    #[command(after_help = usage::LETTERS_DISCARD)]
    Discard(Box<DiscardCommand>),
}

impl DeadLettersCommand {
    pub(crate) async fn run(self, matches: &ArgMatches) -> ExitCode {
        match self {
            Self::List(list) => run_with(matches, async |config| list.run(config).await).await,
            Self::Show(show) => run_with(matches, async |config| show.run(config).await).await,
            Self::Redrive(redrive) => {
                run_with(matches, async |config| redrive.run(config).await).await
            }
            Self::Discard(discard) => {
                run_with(matches, async |config| discard.run(config).await).await
            }
        }
    }
}

/// Runs `work` with the settings, and turns its error into a message and an exit code.
async fn run_with(
    matches: &ArgMatches,
    work: impl AsyncFnOnce(DeadLettersConfig) -> Result<ExitCode>,
) -> ExitCode {
    let config = match settings::load_dead_letters(matches) {
        Ok(config) => config,
        Err(bad) => return crate::refuse(&bad),
    };
    let _logs = telemetry::warnings();
    exit_code(work(config).await)
}

/// Opens the dead letters. Neither a table nor a stream is created: an empty one would hide that the URL names the
/// wrong one.
async fn open_letters(config: &DeadLettersConfig) -> Result<Arc<dyn DeadLetterQueue>> {
    if let Ok(folder) = open::folder(config.dead_letters.expose())
        && !folder.is_dir()
    {
        bail!(
            "there are no dead letters in {}; name their folder with --dead-letter file:FOLDER",
            folder.display()
        );
    }
    open::dead_letters(&config.dead_letters, OnMissing::Fail).await
}

async fn find(letters: &dyn DeadLetterQueue, id: &str) -> Result<DeadLetter> {
    match letters.get(id).await? {
        Some(letter) => Ok(letter),
        None => bail!("there is no dead letter {id:?}; `semel dead-letters list` shows them"),
    }
}

/// The reason that the operator gives for a change.
fn checked_reason(reason: &str) -> Result<&str> {
    if reason.trim().is_empty() {
        bail!(UsageError("--reason is empty; say why in a few words".to_owned()));
    }
    Ok(reason)
}
