//! Start, kill, pause and stop of a server, with this test binary in the role of the server.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::health;
use crate::install::Install;
use crate::process::{ServerProcess, StopSignal};
use crate::record::{ServerOwner, ServerRecord};
use crate::running::{Running, sweep};
use crate::server::TestServer;
use crate::site::{self, ServerSite};
use crate::start::SignalGroup;

const PORT: &str = "SEMEL_STAND_IN_PORT";
const BEHAVIOUR: &str = "SEMEL_STAND_IN_BEHAVIOUR";

const STAND_IN: TestServer = TestServer {
    name: "stand-in",
    install: Install::Present(|| std::env::current_exe().unwrap()),
    account: None,
    prepare: |_, _| Ok(()),
    launch: |_, site| Ok(stand_in(site, "answer")),
    health: |site| health::redis(site.port),
    patience: Duration::from_secs(20),
    stop: StopSignal::Terminate,
    variable: "SEMEL_TEST_STAND_IN",
    url: |port| format!("redis://127.0.0.1:{port}/"),
    args: Vec::new(),
    certificates: None,
};

fn start(server: &TestServer, home: &Path) -> Result<Running> {
    Running::launch(server, &server.install(home)?, home, SignalGroup::Callers)
}

fn stand_in(site: &ServerSite, behaviour: &str) -> Command {
    let mut command = site.command(&site.program);
    command.args(["--exact", "--nocapture", "tests::stand_in_process"]);
    command.env(PORT, site.port.to_string()).env(BEHAVIOUR, behaviour);
    command
}

/// An empty folder for one test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("semel-servers-{name}-{}", std::process::id()));
    site::remove(&folder).unwrap();
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Not a test but the stand-in server: the tests below start this binary with only this test and a port. In an
/// ordinary run there is no port, and it returns at once.
#[test]
fn stand_in_process() {
    let Ok(port) = std::env::var(PORT) else { return };
    match std::env::var(BEHAVIOUR).unwrap().as_str() {
        "answer" => serve(port.parse().unwrap()).unwrap(),
        "silent" => {
            println!("waiting for nothing");
            std::thread::sleep(Duration::from_secs(60));
        }
        _ => panic!("cannot bind: this stand-in gives up"),
    }
}

fn serve(port: u16) -> Result<()> {
    for stream in TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.incoming() {
        let mut conversation = BufReader::new(stream?);
        let mut request = String::new();
        conversation.read_line(&mut request)?;
        let answer = if request == "PING\r\n" { "+PONG\r\n" } else { "-ERR\r\n" };
        conversation.get_mut().write_all(answer.as_bytes())?;
    }
    Ok(())
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_server_starts_answers_and_is_stopped_by_its_record() {
    let home = folder("life");
    let running = start(&STAND_IN, &home).unwrap();
    health::redis(running.port()).unwrap();

    // Reads the record as another process would.
    let [record] = ServerRecord::all(&home).try_into().unwrap();
    assert_eq!(record, *running.record());
    assert!(record.process.is_alive());
    record.stop().unwrap();

    assert!(!record.process.is_alive());
    assert!(health::redis(record.port).is_err());
    assert!(is_empty(&home));
    drop(running);
    site::remove(&home).unwrap();
}

#[test]
fn two_runs_of_one_server_are_independent() {
    let home = folder("two");
    let (one, other) = (start(&STAND_IN, &home).unwrap(), start(&STAND_IN, &home).unwrap());
    assert_ne!(one.port(), other.port());
    drop(one);
    health::redis(other.port()).unwrap();
    drop(other);
    assert!(is_empty(&home));
    site::remove(&home).unwrap();
}

#[test]
fn a_killed_server_restarts_at_its_address() {
    let home = folder("kill");
    let mut running = start(&STAND_IN, &home).unwrap();
    let (url, process) = (running.url().to_owned(), running.record().process);
    running.kill().unwrap();
    assert!(health::redis(running.port()).is_err());
    running.restart().unwrap();
    health::redis(running.port()).unwrap();
    assert_eq!(running.url(), url);
    assert_ne!(running.record().process, process);
    drop(running);
    site::remove(&home).unwrap();
}

#[test]
fn a_paused_server_answers_again_once_resumed_and_is_stopped_even_while_paused() {
    let home = folder("pause");
    let running = start(&STAND_IN, &home).unwrap();
    running.pause().unwrap();
    assert!(health::redis(running.port()).is_err());
    running.resume().unwrap();
    health::redis(running.port()).unwrap();
    running.pause().unwrap();
    let process = running.record().process;
    drop(running);
    assert!(!process.is_alive());
    site::remove(&home).unwrap();
}

#[test]
fn a_server_that_never_answers_fails_with_the_end_of_its_log() {
    let home = folder("silent");
    let silent = TestServer {
        launch: |_, site| Ok(stand_in(site, "silent")),
        patience: Duration::from_millis(700),
        ..STAND_IN
    };
    let error = start(&silent, &home).unwrap_err().to_string();
    assert!(error.contains("no healthy answer within 0.7 s"), "{error}");
    assert!(error.contains("waiting for nothing"), "{error}");
    assert!(is_empty(&home));
    site::remove(&home).unwrap();
}

#[test]
fn a_server_that_exits_fails_with_the_end_of_its_log() {
    let home = folder("exits");
    let broken = TestServer { launch: |_, site| Ok(stand_in(site, "give up")), ..STAND_IN };
    let error = start(&broken, &home).unwrap_err().to_string();
    assert!(error.contains("it ended with exit status"), "{error}");
    assert!(error.contains("this stand-in gives up"), "{error}");
    assert!(is_empty(&home));
    site::remove(&home).unwrap();
}

#[test]
fn a_server_belongs_to_its_task_until_that_ends() {
    let home = folder("owner");
    let running = start(&STAND_IN, &home).unwrap();
    let mut record = running.record().clone();
    assert!(!record.is_free());

    let mut task = Command::new("true").spawn().unwrap();
    let ended = ServerProcess::of(task.id()).unwrap();
    task.wait().unwrap();
    record.owner = ServerOwner::Task(ended);
    assert!(record.is_free());

    // The next run ends the server that the killed task left.
    record.save().unwrap();
    sweep(&home);
    assert!(!record.process.is_alive());

    record.owner = ServerOwner::Checkout;
    assert!(record.is_free());
    drop(running);
    site::remove(&home).unwrap();
}

#[test]
fn a_missing_program_is_reported_with_the_fix() {
    let install = Install::Wheel { package: "none", version: "0", program: "none" };
    let missing = TestServer { name: "oracle", install, ..STAND_IN };
    let error = missing.program(Path::new("no/such/folder")).unwrap_err().to_string();
    assert!(error.contains("cargo xtask servers install oracle"), "{error}");
}
