//! A long chaos run over one store: `cargo xtask crash NAME`. The gate runs short ones as tests.

use anyhow::Result;
use clap::Args;
use semel_servers::command;

use crate::servers::CATALOGUE;
use crate::workspace::Workspace;

/// The stores that promise to keep what they acknowledged, the inbox, and consumers of events.
pub(crate) const STORES: [&str; 10] = [
    "embedded",
    "postgres",
    "redis",
    "valkey",
    "nats",
    "nats-cluster",
    "arbiter",
    "inbox",
    "consumer",
    "consumer-kafka",
];

/// How many processes a run kills, and how many faults its server gets.
const KILLS: u32 = 2000;
const FAULTS: u32 = 200;

const CARGO: [&str; 6] = ["run", "--quiet", "--release", "--package", "semel-crash", "--"];

#[derive(Args)]
pub(crate) struct CrashOptions {
    /// The store: `embedded`, `postgres`, `redis`, `valkey`, `nats`, `nats-cluster`, `arbiter`, `inbox`,
    /// `consumer`, `consumer-kafka`, `plain`, `memory`, or an address such as `plain:{dir}/store`.
    name: String,
    /// How many worker processes to kill.
    #[arg(long, default_value_t = KILLS)]
    kills: u32,
    /// How many faults to inject into the server, for a store that has one.
    #[arg(long, alias = "blows", default_value_t = FAULTS)]
    faults: u32,
    /// The seed of an earlier run, to repeat its random choices.
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(workspace: &Workspace, options: &CrashOptions) -> Result<()> {
    let mut chaos = workspace.cargo(&CARGO);
    let servers = match &*options.name {
        "arbiter" => &["postgres", "redis"][..],
        "nats-cluster" | "consumer" => &["nats"],
        "consumer-kafka" => &["kafka", "nats"],
        "inbox" => &["postgres"],
        name => &[name],
    };
    for server in CATALOGUE.iter().filter(|server| servers.contains(&server.name)) {
        chaos.env(server.program_variable(), server.install(&workspace.tools())?);
    }
    command::run(chaos.args(options.arguments()))
}

impl CrashOptions {
    /// A run of the usual length over `name`.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), kills: KILLS, faults: FAULTS, seed: None }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["chaos".to_owned(), self.name.clone()];
        arguments.push(format!("--kills={}", self.kills));
        arguments.push(format!("--faults={}", self.faults));
        arguments.extend(self.seed.map(|seed| format!("--seed={seed}")));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_an_earlier_run_is_passed_on() {
        let options =
            CrashOptions { kills: 7, faults: 2, seed: Some(42), ..CrashOptions::new("nats") };
        assert_eq!(options.arguments(), ["chaos", "nats", "--kills=7", "--faults=2", "--seed=42"]);
    }
}
