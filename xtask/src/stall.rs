//! Servers that stall for longer than a lease: `cargo xtask stall STORE`. The gate runs one freeze of each server as a
//! test.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use semel_servers::command;

use crate::servers::CATALOGUE;
use crate::workspace::Workspace;

/// The stores on servers.
pub(crate) const STORES: [&str; 6] =
    ["postgres", "redis", "valkey", "nats", "nats-cluster", "arbiter"];

const LEASE: Duration = Duration::from_secs(2);
const ROUNDS: u32 = 20;
const KEYS: u32 = 60;
/// A replicated server reorders more.
const KEYS_OF_NATS: u32 = 2_500;

/// How the server stalls, and for how many tenths of the lease.
const STALLS: [(&str, u32); 5] =
    [("freeze", 15), ("freeze", 20), ("freeze", 100), ("cut", 20), ("restart", 20)];

const CARGO: [&str; 6] = ["run", "--quiet", "--release", "--package", "semel-crash", "--"];

#[derive(Args)]
pub(crate) struct StallOptions {
    /// The store: `postgres`, `redis`, `valkey`, `nats`, `nats-cluster` or `arbiter`.
    name: String,
    /// How often the server stalls in each way.
    #[arg(long, default_value_t = ROUNDS)]
    rounds: u32,
    /// The keys of each round. Default: 60, and 2,500 over NATS.
    #[arg(long)]
    keys: Option<u32>,
}

impl StallOptions {
    /// A run of the usual length over `name`.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), rounds: ROUNDS, keys: None }
    }
}

/// Stalls the server of one store in every way.
pub(crate) fn run(workspace: &Workspace, options: &StallOptions) -> Result<()> {
    let name = &*options.name;
    let servers = match name {
        "arbiter" => &["postgres", "redis"][..],
        "nats-cluster" => &["nats"],
        name => &[name],
    };
    let is_nats = name.starts_with("nats");
    let keys = options.keys.unwrap_or(if is_nats { KEYS_OF_NATS } else { KEYS });
    // Clients of a cluster must see its members, so no proxy can cut them off.
    let stalls = STALLS.into_iter().filter(|(kind, _)| name != "nats-cluster" || *kind != "cut");
    for (kind, tenths) in stalls {
        let mut stall = workspace.cargo(&CARGO);
        for server in CATALOGUE.iter().filter(|server| servers.contains(&server.name)) {
            stall.env(server.program_variable(), server.install(&workspace.tools())?);
        }
        stall.args(["stall", name, "--kind", kind]);
        stall.arg(format!("--lease-ms={}", LEASE.as_millis()));
        stall.arg(format!("--stall-ms={}", (LEASE * tenths / 10).as_millis()));
        stall.arg(format!("--rounds={}", options.rounds)).arg(format!("--keys={keys}"));
        command::run(&mut stall)?;
    }
    Ok(())
}
