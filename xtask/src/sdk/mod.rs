//! Runs unmodified SDKs against the gateway: `cargo xtask sdk`.
//!
//! The Stripe SDKs for Python and Node charge through the gateway. Its upstream fails, closes connections or
//! answers too late. The SDKs also call the upstream directly: there the same retries must charge twice,
//! otherwise the counts would prove nothing.

mod case;
mod client;
mod gateway;
mod http;
mod install;
mod orders;
mod table;
mod upstream;
mod urlencoded;

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Result, anyhow, ensure};

use crate::sdk::case::Destination;
use crate::sdk::client::{SdkClient, SdkRun};
use crate::sdk::gateway::GatewayProcess;
use crate::sdk::table::CaseRow;
use crate::sdk::upstream::ChargeUpstream;
use crate::workspace::Workspace;

pub(crate) use self::gateway::GatewayBuild;

/// Runs every client over every case and fails on any wrong count.
pub(crate) fn run(workspace: &Workspace, build: GatewayBuild<'_>) -> Result<()> {
    let clients = [install::python(workspace)?, install::node(workspace)?];
    let program = gateway::program(workspace, build)?;
    let upstream = ChargeUpstream::start()?;
    let folder = workspace.scratch().join(format!("sdk-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let gateway = GatewayProcess::start(&folder, &program, upstream.address())?;
    let rows = runs(&clients, &folder, &upstream, &gateway)?;
    gateway.stop()?;
    print!("{}", table::text(&rows));
    let wrong = rows.iter().filter(|row| row.violation.is_some()).count();
    ensure!(wrong == 0, "{wrong} of {} cases went wrong; logs: {}", rows.len(), folder.display());
    Ok(fs::remove_dir_all(folder)?)
}

/// Runs all at the same time: they mostly wait.
fn runs(
    clients: &[SdkClient],
    folder: &Path,
    upstream: &ChargeUpstream,
    gateway: &GatewayProcess,
) -> Result<Vec<CaseRow>> {
    let destinations =
        [(Destination::Gateway, gateway.address()), (Destination::Upstream, upstream.address())];
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (destination, address) in destinations {
            for client in clients {
                let run = SdkRun { client, destination, address, folder };
                running.push(scope.spawn(move || run.run(upstream)));
            }
        }
        let mut rows = Vec::new();
        for run in running {
            rows.extend(run.join().map_err(|_| anyhow!("the thread of an SDK run panicked"))??);
        }
        Ok(rows)
    })
}
