//! Redis from Debian, in memory only.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::servers::health;
use crate::servers::install::{Install, on_path};
use crate::servers::process::Stop;
use crate::servers::server::Server;
use crate::servers::site::Site;

pub(crate) const SERVER: Server = Server {
    name: "redis",
    install: Install::Debian { package: "redis-server", find: || on_path("redis-server") },
    account: None,
    launch,
    health: |site| health::redis(site.port),
    patience: Duration::from_secs(20),
    stop: Stop::Terminate,
    variable: "SEMEL_TEST_REDIS_URL",
    url: |port| format!("redis://127.0.0.1:{port}/"),
};

fn launch(site: &Site) -> Result<Command> {
    let mut command = site.command(&site.program);
    command
        .args(["--bind", "127.0.0.1", "--port", &site.port.to_string()])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(&site.data);
    Ok(command)
}
