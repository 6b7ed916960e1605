//! The binary as a child process.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use super::PATIENCE;

/// A process, which is killed when this is dropped, and its output.
#[derive(Debug)]
pub(super) struct ChildProcess {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

impl ChildProcess {
    pub(super) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let stdout = gathered(child.stdout.take().unwrap());
        let stderr = gathered(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    pub(super) fn stdout(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    pub(super) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// The address after these words on stderr; waits for them.
    pub(super) async fn address_after(&mut self, words: &str) -> SocketAddr {
        let started_at = Instant::now();
        loop {
            let text = self.stderr();
            if let Some((_, rest)) = text.split_once(words) {
                let end = rest.find(|it: char| !it.is_ascii_digit() && !".:".contains(it));
                return rest[..end.unwrap_or(rest.len())].parse().expect("an address");
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended with {ended:?} before {words:?}:\n{text}");
            assert!(started_at.elapsed() < PATIENCE, "no {words:?} on stderr:\n{text}");
            sleep(Duration::from_millis(2)).await;
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is there");
    }

    pub(super) async fn wait(&mut self, bound: Duration) -> ExitStatus {
        let started_at = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started_at.elapsed() < bound, "still running after {bound:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- stderr of the process\n{}---", self.stderr());
        }
    }
}

/// Collects the output to its end: a process whose output is not read would block.
fn gathered(output: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let shared = Arc::clone(&text);
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let mut text = shared.lock().unwrap();
            text.push_str(&line);
            text.push('\n');
        }
    });
    text
}
