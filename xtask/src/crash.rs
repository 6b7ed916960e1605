//! A long storm of kills over one store: `cargo xtask crash NAME`. The gate runs short ones as tests.

use anyhow::Result;
use clap::Args;
use semel_servers::command;

use crate::servers::CATALOGUE;
use crate::workspace::Workspace;

#[derive(Args)]
pub(crate) struct CrashOptions {
    /// The store: `embedded`, `postgres`, `redis`, `valkey`, `nats`, `nats-cluster`, `arbiter`, `inbox`, `plain`, `memory`, or an address such as
    /// `plain:{dir}/store`.
    name: String,
    /// How many processes to kill.
    #[arg(long, default_value_t = 2000)]
    kills: u32,
    /// How many blows to the server, where the storm has one of its own.
    #[arg(long, default_value_t = 200)]
    blows: u32,
    /// Repeats the dice of an earlier storm.
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(workspace: &Workspace, options: &CrashOptions) -> Result<()> {
    let mut storm = workspace.cargo(&CARGO);
    let servers = match &*options.name {
        "arbiter" => &["postgres", "redis"][..],
        "nats-cluster" => &["nats"],
        "inbox" => &["postgres"],
        name => &[name],
    };
    for server in CATALOGUE.iter().filter(|server| servers.contains(&server.name)) {
        storm.env(server.program_variable(), server.install(&workspace.tools())?);
    }
    command::run(storm.args(options.arguments()))
}

const CARGO: [&str; 6] = ["run", "--quiet", "--release", "--package", "semel-crash", "--"];

impl CrashOptions {
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["storm".to_owned(), self.name.clone()];
        arguments.push(format!("--kills={}", self.kills));
        arguments.push(format!("--blows={}", self.blows));
        arguments.extend(self.seed.map(|seed| format!("--seed={seed}")));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_an_earlier_storm_is_passed_on() {
        let options =
            CrashOptions { name: "embedded".to_owned(), kills: 7, blows: 2, seed: Some(42) };
        assert_eq!(
            options.arguments(),
            ["storm", "embedded", "--kills=7", "--blows=2", "--seed=42"]
        );
    }
}
