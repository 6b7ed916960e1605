//! Output to a closed pipe or a full disk.

use std::{fs::File, process::Stdio};

use tempfile::TempDir;

use super::stderr;
use crate::harness::{
    ClientConnection, KillOnDrop, PATIENCE, TestRequest, TestUpstream, closed_pipe, command, until,
};

#[test]
fn a_check_does_not_panic_when_its_stdout_is_closed() {
    let folder = TempDir::new().unwrap();
    let mut command = command(folder.path());
    let output =
        command.args(["config", "check", "--demo"]).stdout(closed_pipe()).stderr(Stdio::piped());
    let output = output.output().unwrap();
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0));
}

/// A summary that did not arrive was not given.
#[test]
fn a_check_on_a_full_disk_fails() {
    let folder = TempDir::new().unwrap();
    let mut command = command(folder.path());
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command.args(["config", "check", "--demo"]).stdout(full).stderr(Stdio::piped());
    let output = output.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write to stdout"), "{}", stderr(&output));
}

#[test]
fn an_error_keeps_its_exit_code_when_stderr_is_closed() {
    let folder = TempDir::new().unwrap();
    let status = command(folder.path()).arg("gateway").stderr(closed_pipe()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

/// Outcomes are worth more than log lines.
#[tokio::test]
async fn a_blocked_stderr_delays_no_request() {
    let upstream = TestUpstream::counting().await;
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_unread, stderr) = std::io::pipe().unwrap();
    let folder = TempDir::new().unwrap();
    let mut command = command(folder.path());
    command.args(["gateway", "--principal", "anonymous", "--store", "memory:"]);
    command.args(["--listen", &address.to_string()]);
    command.args(["--upstream", &format!("http://{}", upstream.address)]).stderr(stderr);
    let _process = KillOnDrop(command.spawn().unwrap());
    until("it listens", async || std::net::TcpStream::connect(address).is_ok()).await;
    let mut connection = ClientConnection::to(address).await;
    for number in 0..2000 {
        connection.write(TestRequest::charge("k").bytes()).await;
        let response = tokio::time::timeout(PATIENCE, connection.read_response()).await;
        assert!(response.is_ok(), "no answer to request {number}");
    }
}
