//! PgBouncer from Debian's package, in front of a PostgreSQL. It refuses root, so it runs as `postgres`.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::health;
use crate::install::{Install, on_path};
use crate::process::StopSignal;
use crate::server::TestServer;
use crate::site::ServerSite;

/// PgBouncer. Start it with [`pgbouncer`], which names the PostgreSQL behind it.
pub const PGBOUNCER: TestServer = TestServer {
    name: "pgbouncer",
    install: Install::Debian { package: "pgbouncer", find },
    account: Some("postgres"),
    prepare,
    launch,
    health,
    patience: Duration::from_secs(20),
    stop: StopSignal::Interrupt,
    variable: "SEMEL_TEST_PGBOUNCER",
    url: |port| format!("postgres://postgres@127.0.0.1:{port}/postgres"),
    args: Vec::new(),
    certificates: None,
};

/// A PgBouncer in front of the PostgreSQL on this port, with these settings, such as `pool_mode = session`.
#[must_use]
pub fn pgbouncer(postgres: u16, settings: &[&str]) -> TestServer {
    let databases = format!("[databases]\n* = host=127.0.0.1 port={postgres} user=postgres");
    PGBOUNCER.args([databases, "[pgbouncer]".to_owned()]).args(settings.iter().copied())
}

/// `/usr/sbin` is on the path of root only.
fn find() -> Option<PathBuf> {
    let system = || Some(PathBuf::from("/usr/sbin/pgbouncer")).filter(|file| file.is_file());
    on_path("pgbouncer").or_else(system)
}

/// The arguments are the lines of the settings file.
fn prepare(server: &TestServer, site: &ServerSite) -> Result<()> {
    let port = site.port;
    ensure!(!server.args.is_empty(), "start it with `pgbouncer`, in front of a PostgreSQL");
    let lines = format!(
        "{}\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n",
        server.args.join("\n")
    );
    fs::write(settings(site), lines).context("cannot write the settings")
}

/// PgBouncer takes the name of its settings file and no other argument, so a shell drops the rest.
fn launch(_: &TestServer, site: &ServerSite) -> Result<Command> {
    let mut command = site.command("/bin/sh");
    command.args(["-c", "exec \"$0\" \"$1\""]).arg(&site.program).arg(settings(site));
    Ok(command)
}

fn settings(site: &ServerSite) -> PathBuf {
    site.data.join("pgbouncer.ini")
}

/// Sends the TLS request with which PostgreSQL's clients begin. The reply is one letter.
fn health(site: &ServerSite) -> Result<()> {
    let mut conversation = health::connect(site.port)?;
    conversation.get_mut().write_all(&[0, 0, 0, 8, 4, 210, 22, 47])?;
    let mut answer = [0];
    conversation.read_exact(&mut answer)?;
    ensure!(answer == *b"N", "expected `N`, got {answer:?}");
    Ok(())
}
