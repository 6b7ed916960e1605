//! A private PostgreSQL cluster from Debian's package. It refuses root, so it runs as `postgres`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::command;
use crate::servers::install::Install;
use crate::servers::process::Stop;
use crate::servers::server::Server;
use crate::servers::site::Site;

pub(crate) const SERVER: Server = Server {
    name: "postgres",
    install: Install::Debian { package: "postgresql", find: newest },
    account: Some("postgres"),
    launch,
    health,
    patience: Duration::from_secs(60),
    // SIGINT is its fast shutdown; SIGTERM would wait for every client to leave.
    stop: Stop::Interrupt,
    variable: "SEMEL_TEST_POSTGRES_URL",
    url: |port| format!("postgres://postgres@127.0.0.1:{port}/postgres"),
};

/// Debian keeps each major version in a folder of its own, off the path.
fn newest() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let number = |folder: &fs::DirEntry| folder.file_name().to_str()?.parse::<u32>().ok();
    let programs = versions.filter_map(|it| Some((number(&it)?, it.path().join("bin/postgres"))));
    let (_, program) = programs.filter(|(_, program)| program.exists()).max()?;
    Some(program)
}

fn launch(site: &Site) -> Result<Command> {
    let cluster = site.data.join("cluster");
    let mut initdb = site.command(site.program.with_file_name("initdb"));
    initdb
        .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"])
        .args(["--no-sync", "-D"])
        .arg(&cluster);
    command::run(&mut site.logged(initdb)?)?;

    let mut postgres = site.command(&site.program);
    // No Unix socket: its path would be too long below a deep checkout.
    postgres
        .args(["-p", &site.port.to_string(), "-c", "listen_addresses=127.0.0.1"])
        .args(["-c", "unix_socket_directories=", "-D"])
        .arg(&cluster);
    Ok(postgres)
}

fn health(site: &Site) -> Result<()> {
    let mut psql = site.command(site.program.with_file_name("psql"));
    psql.env("PGCONNECT_TIMEOUT", "2")
        .args(["-X", "-h", "127.0.0.1", "-p", &site.port.to_string()])
        .args(["-U", "postgres", "-d", "postgres", "-Atc", "SELECT 1"]);
    let output = psql.output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.stdout == b"1\n", "`SELECT 1` failed: {}", complaint.trim());
    Ok(())
}
