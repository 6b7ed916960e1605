//! The gateway under test: built, started on a free port, stopped by its process id.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use semel_servers::command::{self, Service};

use crate::cargo_messages::BuildMessages;
use crate::workspace::Workspace;

const POLL: Duration = Duration::from_millis(20);

/// How long the gateway may take to listen, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

const ARGUMENTS: [&str; 9] = [
    "gateway",
    "--listen",
    "127.0.0.1:0",
    "--store",
    "memory:",
    "--principal",
    "authorization",
    "--wait",
    "10s",
];

/// A running gateway. Dropping it kills the process.
pub(crate) struct GatewayProcess {
    address: SocketAddr,
    service: Service,
    log: PathBuf,
}

/// Where the program comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GatewayBuild<'a> {
    /// It is built here, alone.
    Alone,
    /// The gate has built it, with everything else.
    Built(&'a BuildMessages),
}

/// The path of `semel`.
pub(crate) fn program(workspace: &Workspace, build: GatewayBuild<'_>) -> Result<PathBuf> {
    const PACKAGE: &str = "semel-cli";
    let package = workspace.package(PACKAGE).with_context(|| format!("no package {PACKAGE}"))?;
    let program = |built: &BuildMessages| {
        let program = built.program(&package.id, "bin", "semel").map(Path::to_owned);
        program.context("cargo built no `semel`")
    };
    match build {
        GatewayBuild::Alone => {
            let mut cargo = workspace.cargo(&["build", "--package", PACKAGE, "--bin", "semel"]);
            cargo.arg("--message-format=json-render-diagnostics");
            program(&BuildMessages::parse(&command::capture(&mut cargo)?))
        }
        GatewayBuild::Built(built) => program(built),
    }
}

impl GatewayProcess {
    /// Starts a gateway for `upstream`, and returns when it listens.
    pub(crate) fn start(folder: &Path, program: &Path, upstream: SocketAddr) -> Result<Self> {
        let log = folder.join("gateway.log");
        let mut gateway = Command::new(program);
        gateway.args(ARGUMENTS).arg("--upstream").arg(format!("http://{upstream}"));
        // The gateway must find neither a semel.toml nor settings of the caller's environment.
        gateway.current_dir(folder);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SEMEL_") {
                gateway.env_remove(name);
            }
        }
        let output = File::create(&log)?;
        let mut service = Service::start(gateway.stdout(output.try_clone()?).stderr(output))?;
        let address = await_address(&mut service, &log)?;
        Ok(Self { address, service, log })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends SIGTERM; the gateway must then end with success.
    pub(crate) fn stop(self) -> Result<()> {
        self.service.stop(PATIENCE).with_context(|| failure(&self.log))
    }
}

fn await_address(service: &mut Service, log: &Path) -> Result<SocketAddr> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(address) = address(&fs::read_to_string(log)?) {
            return Ok(address);
        }
        if let Some(status) = service.status()? {
            bail!("the gateway ended with {status}; {}", failure(log));
        }
        if Instant::now() >= deadline {
            bail!("the gateway does not listen; {}", failure(log));
        }
        sleep(POLL);
    }
}

/// The address in the log, once its line is complete.
fn address(log: &str) -> Option<SocketAddr> {
    let (_, rest) = log.split_once("listening on http://")?;
    let end = rest.find(|it: char| !it.is_ascii_digit() && !".:".contains(it))?;
    rest[..end].parse().ok()
}

fn failure(log: &Path) -> String {
    format!("the gateway's log:\n{}", fs::read_to_string(log).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_a_whole_line_only() {
        assert_eq!(address("INFO listening on http://127.0.0.1:80"), None);
        let found = address("a\nINFO listening on http://127.0.0.1:8080\nb\n");
        assert_eq!(found, Some(SocketAddr::from(([127, 0, 0, 1], 8080))));
        assert_eq!(address("INFO starting\n"), None);
    }
}
