//! A private PostgreSQL cluster from Debian's package. It refuses root, so it runs as `postgres`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::command;
use crate::install::Install;
use crate::process::StopSignal;
use crate::server::TestServer;
use crate::site::ServerSite;

/// PostgreSQL, which writes to disk before it answers.
pub const POSTGRES: TestServer = TestServer {
    name: "postgres",
    install: Install::Debian { package: "postgresql", find: newest },
    account: Some("postgres"),
    prepare,
    launch,
    health: |site| sql(site, "SELECT 1").map(drop),
    patience: Duration::from_secs(60),
    // SIGINT is its fast shutdown; SIGTERM would wait for every client to disconnect.
    stop: StopSignal::Interrupt,
    variable: "SEMEL_TEST_POSTGRES",
    url: |port| format!("postgres://postgres@127.0.0.1:{port}/postgres"),
    args: Vec::new(),
    certificates: None,
};

/// Debian installs each major version in a folder of its own that is not on the path.
fn newest() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let number = |folder: &fs::DirEntry| folder.file_name().to_str()?.parse::<u32>().ok();
    let programs = versions.filter_map(|it| Some((number(&it)?, it.path().join("bin/postgres"))));
    let (_, program) = programs.filter(|(_, program)| program.exists()).max()?;
    Some(program)
}

fn prepare(server: &TestServer, site: &ServerSite) -> Result<()> {
    let mut initdb = site.command(site.program.with_file_name("initdb"));
    initdb
        .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"])
        .args(["--no-sync", "-D"])
        .arg(cluster(site));
    command::run(&mut site.logged(initdb)?)?;
    let Some(certificates) = &server.certificates else { return Ok(()) };
    site.give(certificates.certificate(), "server.crt")?;
    site.give(certificates.key(), "server.key")
}

fn launch(server: &TestServer, site: &ServerSite) -> Result<Command> {
    let mut postgres = site.command(&site.program);
    // No Unix socket: its path would be too long below a deep checkout.
    postgres
        .args(["-p", &site.port.to_string(), "-c", "listen_addresses=127.0.0.1"])
        .args(["-c", "unix_socket_directories=", "-D"])
        .arg(cluster(site));
    if server.certificates.is_some() {
        postgres.args(["-c", "ssl=on"]);
        postgres.arg("-c").arg(setting("ssl_cert_file", &site.data.join("server.crt")));
        postgres.arg("-c").arg(setting("ssl_key_file", &site.data.join("server.key")));
    }
    Ok(postgres)
}

fn cluster(site: &ServerSite) -> PathBuf {
    site.data.join("cluster")
}

fn setting(name: &str, value: &Path) -> OsString {
    let mut setting = OsString::from(format!("{name}="));
    setting.push(value);
    setting
}

/// Runs one statement and returns the output of psql.
pub(crate) fn sql(site: &ServerSite, statement: &str) -> Result<String> {
    let mut psql = site.command(site.program.with_file_name("psql"));
    psql.env("PGCONNECT_TIMEOUT", "2")
        .args(["-X", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", &site.port.to_string()])
        .args(["-U", "postgres", "-d", "postgres", "-Atqc", statement]);
    let output = psql.output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{statement}` failed: {}", message.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
