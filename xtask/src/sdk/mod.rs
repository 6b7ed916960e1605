//! Real clients against the real gateway: `cargo xtask sdk`.
//!
//! The Stripe SDKs, as their registries have them, charge through the gateway at an upstream that
//! fails, breaks off or answers too late. They also do so straight at the upstream, where the same
//! retries must be seen to charge twice: else the count would prove nothing.

mod case;
mod client;
mod form;
mod gateway;
mod http;
mod install;
mod ledger;
mod table;
mod upstream;

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Result, anyhow, ensure};

use crate::sdk::case::Way;
use crate::sdk::client::{Client, Trial};
use crate::sdk::gateway::Gateway;
use crate::sdk::table::Row;
use crate::sdk::upstream::Upstream;
use crate::workspace::Workspace;

pub(crate) use self::gateway::Build;

/// Runs every client over every case and fails on any wrong count.
pub(crate) fn run(workspace: &Workspace, build: Build) -> Result<()> {
    let clients = [install::python(workspace)?, install::node(workspace)?];
    let program = gateway::build(workspace, build)?;
    let upstream = Upstream::start()?;
    let folder = workspace.scratch().join(format!("sdk-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let gateway = Gateway::start(&folder, &program, upstream.address())?;
    let rows = trials(&clients, &folder, &upstream, &gateway)?;
    gateway.stop()?;
    print!("{}", table::text(&rows));
    let wrong = rows.iter().filter(|row| row.wrong.is_some()).count();
    ensure!(wrong == 0, "{wrong} of {} cases went wrong; logs: {}", rows.len(), folder.display());
    Ok(fs::remove_dir_all(folder)?)
}

/// All at once: they mostly wait.
fn trials(
    clients: &[Client],
    folder: &Path,
    upstream: &Upstream,
    gateway: &Gateway,
) -> Result<Vec<Row>> {
    let ways = [(Way::Gateway, gateway.address()), (Way::Straight, upstream.address())];
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (way, address) in ways {
            for client in clients {
                let trial = Trial { client, way, address, folder };
                running.push(scope.spawn(move || trial.run(upstream)));
            }
        }
        let mut rows = Vec::new();
        for trial in running {
            rows.extend(trial.join().map_err(|_| anyhow!("a trial panicked"))??);
        }
        Ok(rows)
    })
}
