//! A process known by pid and start time. The kernel reuses pids, so a pid alone may name a stranger
//! by the time somebody wants to stop it.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

const POLL: Duration = Duration::from_millis(20);

/// How long a killed process may take to vanish.
const KILL_BOUND: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Clock ticks since boot, as `/proc` tells them.
    started_at: u64,
}

/// The signal that asks a server to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stop {
    Terminate,
    Interrupt,
}

impl Process {
    /// The running process with this pid.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let pid = i32::try_from(pid)?;
        let (_, started_at) = stat(pid).with_context(|| format!("no process {pid}"))?;
        Ok(Self { pid, started_at })
    }

    /// The process we are.
    pub(crate) fn own() -> Result<Self> {
        Self::of(std::process::id())
    }

    /// True while it runs; a zombie has ended, and a newer process with its pid is another.
    pub(crate) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|(state, started_at)| {
            started_at == self.started_at && !matches!(state, 'Z' | 'X')
        })
    }

    /// Asks it to end, and kills it when it has not after `bound`.
    pub(crate) fn stop(self, stop: Stop, bound: Duration) -> Result<()> {
        self.signal(stop.signal())?;
        if self.ends_within(bound) {
            return Ok(());
        }
        self.signal(Signal::SIGKILL)?;
        ensure!(self.ends_within(KILL_BOUND), "process {} survives SIGKILL", self.pid);
        Ok(())
    }

    fn signal(self, signal: Signal) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot signal {}", self.pid)),
        }
    }

    fn ends_within(self, bound: Duration) -> bool {
        let deadline = Instant::now() + bound;
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(POLL);
        }
        true
    }
}

impl Stop {
    fn signal(self) -> Signal {
        match self {
            Self::Terminate => Signal::SIGTERM,
            Self::Interrupt => Signal::SIGINT,
        }
    }
}

/// State and start time from `/proc/<pid>/stat`: fields 3 and 22.
fn stat(pid: i32) -> Option<(char, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(line: &str) -> Option<(char, u64)> {
    // Field 2 is the program's name in brackets, and may hold blanks and brackets itself.
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    use super::*;

    const BOUND: Duration = Duration::from_secs(5);

    fn shell(script: &str) -> (Child, Process) {
        let mut shell = Command::new("sh");
        let child = shell.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        (child, process)
    }

    #[test]
    fn stat_is_read_past_a_name_with_brackets_and_blanks() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse_stat(line), Some(('S', 4711)));
    }

    #[test]
    fn a_stopped_process_is_gone() {
        let (mut child, process) = shell("exec sleep 60");
        assert!(process.is_alive());
        process.stop(Stop::Terminate, BOUND).unwrap();
        assert!(!process.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn a_process_deaf_to_the_request_is_killed() {
        let (mut child, process) = shell("trap '' TERM; echo deaf; while :; do sleep 0.05; done");
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        process.stop(Stop::Terminate, Duration::from_millis(300)).unwrap();
        assert!(!process.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn a_stranger_with_the_same_pid_is_left_alone() {
        let (mut child, process) = shell("exec sleep 60");
        let earlier = Process { started_at: process.started_at - 1, ..process };
        earlier.stop(Stop::Terminate, BOUND).unwrap();
        assert!(process.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
