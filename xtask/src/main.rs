//! The commands of `cargo xtask`: the gate, and what engineers run beside it.

mod api;
mod bench;
mod cargo_messages;
mod coverage;
mod crash;
mod gate;
mod model;
mod sdk;
mod servers;
mod soak;
mod stall;
mod tools;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use semel_servers::command;

use crate::workspace::Workspace;

#[derive(Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    about = "Checks, servers and benchmarks of the project"
)]
struct XtaskArgs {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Run the whole gate: what CI runs.
    Test {
        /// Run the tests of this package only. May be repeated.
        #[arg(short, long)]
        package: Vec<String>,
        #[command(flatten)]
        options: gate::GateOptions,
    },
    /// Run the quick part of the gate, after every step of work.
    Check(gate::GateOptions),
    /// Run the long chaos runs, models and schedules, and check the line coverage. Takes hours.
    Soak,
    /// Print line coverage per crate and file; fail when a crate is below its floor.
    Coverage,
    /// Compare the public API with `docs/api`, or rewrite that.
    Api {
        /// Rewrite the snapshots.
        #[arg(long)]
        update: bool,
    },
    /// Run the schedule tests of the core: those of the gate, or other and more schedules.
    Schedules(gate::ScheduleOptions),
    /// Start, stop or list real servers for tests.
    #[command(subcommand)]
    Servers(servers::ServersCommand),
    /// Run a benchmark, such as `memory` or `gateway`; further arguments go to it.
    Bench {
        /// Its name and options.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Kill workers over a store under load, and check the history.
    Crash(crash::CrashOptions),
    /// Stall a server for longer than a lease, and check that no work of a living owner runs twice.
    Stall(stall::StallOptions),
    /// Run the Stripe SDKs against the gateway, with an upstream that fails.
    Sdk,
    /// Check the protocol in larger bounds than the gate does.
    Model,
    /// Check bans, licenses and sources of all dependencies.
    Deny {
        /// Check known vulnerabilities, too: fetches the advisory database.
        #[arg(long)]
        advisories: bool,
    },
}

fn main() -> ExitCode {
    match run(XtaskArgs::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: XtaskCommand) -> Result<()> {
    let workspace = Workspace::load()?;
    servers::stop_on_interrupt(workspace.servers())?;
    match command {
        XtaskCommand::Test { package, options } => gate::test(workspace, package, &options),
        XtaskCommand::Check(options) => gate::check(workspace, &options),
        XtaskCommand::Soak => soak::run(&workspace),
        XtaskCommand::Coverage => coverage::run(&workspace),
        XtaskCommand::Api { update: true } => api::update(&workspace),
        XtaskCommand::Api { update: false } => api::compare(&workspace),
        XtaskCommand::Schedules(schedules) => schedules.run(&workspace),
        XtaskCommand::Servers(command) => servers::run(&workspace, command),
        XtaskCommand::Bench { args } => bench::run(&workspace, &args),
        XtaskCommand::Crash(options) => crash::run(&workspace, &options),
        XtaskCommand::Stall(options) => stall::run(&workspace, &options),
        XtaskCommand::Sdk => sdk::run(&workspace, sdk::GatewayBuild::Alone),
        XtaskCommand::Model => model::run(&workspace),
        XtaskCommand::Deny { advisories } => deny(&workspace, advisories),
    }
}

fn deny(workspace: &Workspace, advisories: bool) -> Result<()> {
    let mut deny = workspace.command(tools::DENY.ensure(workspace)?);
    deny.args(["--all-features", "--locked", "check", "bans", "licenses", "sources"]);
    command::run(deny.args(advisories.then_some("advisories")))
}
