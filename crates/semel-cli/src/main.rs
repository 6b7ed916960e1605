//! The `semel` command.

mod dead_letters;
mod doctor;
mod keys;
mod migrate;
mod purge;
mod seal_key;
mod show;
mod store_command;
mod usage;

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use semel_service::settings::{self, GatewayFlags, WorkerFlags};

/// A request makes some fifty small allocations, and often another thread frees them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code for bad usage and bad settings.
const USAGE: u8 = 2;

/// One effect per operation over at-least-once delivery.
#[derive(Parser)]
#[command(name = "semel", version, after_help = usage::SEMEL)]
struct Semel {
    #[command(subcommand)]
    command: SemelCommand,
}

#[derive(Subcommand)]
enum SemelCommand {
    /// Runs a reverse proxy that makes retried requests take effect once.
    #[command(after_help = usage::GATEWAY)]
    Gateway(Box<GatewayFlags>),
    /// Reads a broker and hands each event to an HTTP endpoint once: acks, retries, dead-letters.
    #[command(after_help = usage::WORKER)]
    Worker(Box<WorkerFlags>),
    /// Checks settings.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Shows keys, and resolves those that wait for an operator.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Shows the messages that a worker could not process, and publishes them again.
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLettersCommand),
    /// Deletes expired records now; a gateway also does so at intervals.
    #[command(after_help = usage::PURGE)]
    Purge(Box<purge::PurgeCommand>),
    /// Creates or updates the tables of a PostgreSQL store.
    #[command(after_help = usage::MIGRATE)]
    Migrate(Box<migrate::MigrateCommand>),
    /// Checks a store, and a worker's source and dead letters; lists what was checked, what is wrong, and the fix.
    #[command(after_help = usage::DOCTOR)]
    Doctor(Box<doctor::DoctorCommand>),
    /// Prints a new key that seals outcomes and labels.
    #[command(after_help = usage::SEAL_KEY)]
    SealKey(seal_key::SealKeyCommand),
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Shows the values in force and where each came from, or what is wrong. Starts nothing.
    #[command(after_help = usage::CHECK)]
    Check(Box<GatewayFlags>),
}

#[tokio::main]
async fn main() -> ExitCode {
    let parsed = Semel::command().try_get_matches();
    let matches = parsed.unwrap_or_else(|error| usage::exit(&error));
    match Semel::from_arg_matches(&matches).map(|semel| semel.command) {
        Ok(SemelCommand::Gateway(_)) => gateway(leaf(&matches)).await,
        Ok(SemelCommand::Worker(_)) => worker(leaf(&matches)).await,
        Ok(SemelCommand::Config(ConfigCommand::Check(_))) => check(leaf(&matches)),
        Ok(SemelCommand::Keys(keys)) => keys.run(leaf(&matches)).await,
        Ok(SemelCommand::DeadLetters(letters)) => letters.run(leaf(&matches)).await,
        Ok(SemelCommand::Purge(purge)) => purge.run(leaf(&matches)).await,
        Ok(SemelCommand::Migrate(migrate)) => migrate.run(leaf(&matches)).await,
        Ok(SemelCommand::Doctor(doctor)) => doctor.run(leaf(&matches)).await,
        Ok(SemelCommand::SealKey(make)) => make.run(),
        Err(error) => usage::exit(&error),
    }
}

async fn gateway(matches: &ArgMatches) -> ExitCode {
    let config = match settings::load(matches) {
        Ok(config) => config,
        Err(bad) => return refuse(&bad),
    };
    ended(semel_gateway::run(config).await)
}

async fn worker(matches: &ArgMatches) -> ExitCode {
    let config = match settings::load_worker(matches) {
        Ok(config) => config,
        Err(bad) => return refuse(&bad),
    };
    let problems = semel_worker::open::check_urls(&config);
    if !problems.is_empty() {
        problems.iter().for_each(|problem| complain(format_args!("error: {problem}")));
        return ExitCode::from(USAGE);
    }
    // Boxed: the future is large, and main's future would hold it.
    ended(Box::pin(semel_worker::run(config)).await)
}

/// The exit code of a service that has ended.
fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn check(matches: &ArgMatches) -> ExitCode {
    match settings::summary(matches, semel_worker::open::check_urls) {
        Ok(summary) => print(&summary),
        Err(bad) => refuse(&bad),
    }
}

fn refuse(bad: &settings::BadSettings) -> ExitCode {
    complain(format_args!("{bad}"));
    ExitCode::from(USAGE)
}

/// Writes to stdout. A reader that closes the pipe early, as `head` does, is no failure; a full disk is.
fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(format_args!("error: cannot write to stdout: {error}"));
            ExitCode::FAILURE
        }
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

/// Writes a line to stderr. If stderr is closed, the exit code still shows that the command failed.
fn complain(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The matches of the innermost command.
fn leaf(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, matches)| leaf(matches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Semel::command().debug_assert();
    }
}
