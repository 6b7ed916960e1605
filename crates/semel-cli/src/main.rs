//! The `semel` command.

mod gateway;
mod settings;
mod store;
mod telemetry;
mod usage;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::settings::Flags;

/// Bad usage and bad settings.
const USAGE: u8 = 2;

/// One effect per operation over at-least-once delivery.
#[derive(Parser)]
#[command(name = "semel", version, after_help = usage::SEMEL)]
struct Semel {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Stands in front of a service and makes retried requests take effect once.
    #[command(after_help = usage::GATEWAY)]
    Gateway(Box<Flags>),
    /// Looks at settings.
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Says what is in force and where each value came from, or what is wrong. Starts nothing.
    #[command(after_help = usage::CHECK)]
    Check(Box<Flags>),
}

#[tokio::main]
async fn main() -> ExitCode {
    let parsed = Semel::command().try_get_matches();
    let matches = parsed.unwrap_or_else(|error| usage::exit(&error));
    match Semel::from_arg_matches(&matches).map(|semel| semel.command) {
        Ok(Command::Gateway(_)) => gateway(leaf(&matches)).await,
        Ok(Command::Config(ConfigCommand::Check(_))) => check(leaf(&matches)),
        Err(error) => usage::exit(&error),
    }
}

async fn gateway(matches: &ArgMatches) -> ExitCode {
    let config = match settings::load(matches) {
        Ok(config) => config,
        Err(bad) => return refuse(&bad),
    };
    match gateway::run(config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn check(matches: &ArgMatches) -> ExitCode {
    match settings::check::summary(matches) {
        Ok(summary) => {
            print!("{summary}");
            ExitCode::SUCCESS
        }
        Err(bad) => refuse(&bad),
    }
}

fn refuse(bad: &settings::BadSettings) -> ExitCode {
    eprintln!("{bad}");
    ExitCode::from(USAGE)
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
