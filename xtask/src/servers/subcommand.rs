//! The command `cargo xtask servers up | install | down | status`.

use anyhow::{Context, Result};
use clap::Subcommand;
use semel_servers::{ServerOwner, ServerRecord, TestServer};

use crate::servers::{CATALOGUE, FOR_TESTS, TestServers};
use crate::workspace::Workspace;

#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Start servers and leave them running. Default: all.
    Up {
        /// Names of servers, such as `redis`.
        names: Vec<String>,
    },
    /// Install servers, so that tests can start them. Default: all.
    Install {
        /// Names of servers, such as `valkey`.
        names: Vec<String>,
    },
    /// Stop the servers that `up` started in this checkout, and those that a killed xtask left running.
    Down,
    /// List the servers of this checkout.
    Status,
}

pub(crate) fn run(workspace: &Workspace, command: ServersCommand) -> Result<()> {
    match command {
        ServersCommand::Up { names } => up(workspace, &names),
        ServersCommand::Install { names } => install(workspace, &names),
        ServersCommand::Down => down(workspace),
        ServersCommand::Status => status(workspace),
    }
}

fn up(workspace: &Workspace, names: &[String]) -> Result<()> {
    let mut missing = choose(names, CATALOGUE)?;
    missing.retain(|server| running(workspace).all(|record| record.name != server.name));
    TestServers::start(workspace, &missing)?.hand_over()?;
    for record in running(workspace) {
        println!("export {}={}", record.variable, record.url);
    }
    Ok(())
}

fn install(workspace: &Workspace, names: &[String]) -> Result<()> {
    for server in choose(names, &[CATALOGUE, FOR_TESTS].concat())? {
        let program = server.install(&workspace.tools())?;
        println!("export {}={}", server.program_variable(), program.display());
    }
    Ok(())
}

fn down(workspace: &Workspace) -> Result<()> {
    for record in ServerRecord::all(&workspace.servers()).iter().filter(|record| record.is_free()) {
        record.stop()?;
        println!("{} (pid {}) is down", record.name, record.process.pid);
    }
    Ok(())
}

fn status(workspace: &Workspace) -> Result<()> {
    for record in ServerRecord::all(&workspace.servers()) {
        let state = if record.process.is_alive() { "running" } else { "ended" };
        let owner = match record.owner {
            ServerOwner::Task(task) => format!("until xtask {} ends", task.pid),
            ServerOwner::Checkout => "until `servers down`".to_owned(),
        };
        let ServerRecord { name, process, url, .. } = record;
        println!("{name:<10} pid {:<8} {state:<8} {url}  {owner}", process.pid);
    }
    Ok(())
}

/// The servers that `up` left running.
fn running(workspace: &Workspace) -> impl Iterator<Item = ServerRecord> {
    ServerRecord::all(&workspace.servers())
        .into_iter()
        .filter(|record| record.owner == ServerOwner::Checkout && record.process.is_alive())
}

fn choose(names: &[String], available: &[&'static TestServer]) -> Result<Vec<&'static TestServer>> {
    if names.is_empty() {
        return Ok(available.to_vec());
    }
    names.iter().map(|name| find(name, available)).collect()
}

fn find(name: &str, available: &[&'static TestServer]) -> Result<&'static TestServer> {
    let names = || available.iter().map(|server| server.name).collect::<Vec<_>>().join(", ");
    let server = available.iter().find(|server| server.name == name);
    server.copied().with_context(|| format!("no server `{name}`; there are {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_server_is_refused_with_the_names_of_all() {
        let error = choose(&["oracle".to_owned()], CATALOGUE).unwrap_err().to_string();
        assert!(
            error.contains("oracle") && error.contains("redis, valkey, nats, postgres"),
            "{error}"
        );
    }

    #[test]
    fn no_name_means_every_server() {
        assert_eq!(choose(&[], CATALOGUE).unwrap().len(), CATALOGUE.len());
    }
}
