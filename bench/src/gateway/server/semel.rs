//! `semel gateway` with its defaults, except for its log.

use std::{env, process::Command};

use super::ProxyLaunch;
use crate::options::GatewayBenchOptions;

pub(super) fn command(
    place: &ProxyLaunch<'_>,
    options: &GatewayBenchOptions,
    store: &str,
) -> Command {
    let mut command = Command::new(&options.semel);
    // The environment of the benchmark must not configure it.
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_"))
    {
        command.env_remove(name);
    }
    let (listen, upstream) = (address(place.port), format!("http://{}", address(place.upstream)));
    command.args(["gateway", "--listen", &listen, "--upstream", &upstream]);
    command.args(["--store", store, "--principal", "anonymous", "--log", "warn"]);
    command
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}
