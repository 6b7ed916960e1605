//! A process, identified by pid and start time. The kernel reuses pids, so a pid alone may belong to another process
//! by the time it is to be stopped.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

const POLL: Duration = Duration::from_millis(2);

/// How long a process may take to end after SIGKILL, and to stop after SIGSTOP.
const KILL_BOUND: Duration = Duration::from_secs(5);

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerProcess {
    /// The process id.
    pub pid: i32,
    /// Its start time in clock ticks since boot, from `/proc`.
    started_at: u64,
}

/// The signal with which a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
}

impl ServerProcess {
    /// The running process with this pid.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn of(pid: u32) -> Result<Self> {
        let pid = i32::try_from(pid)?;
        let stat = stat(pid).with_context(|| format!("no process {pid}"))?;
        Ok(Self { pid, started_at: stat.started_at })
    }

    /// The current process.
    ///
    /// # Errors
    ///
    /// When there is no `/proc`.
    pub fn own() -> Result<Self> {
        Self::of(std::process::id())
    }

    /// True while it runs. False for a zombie, and for a newer process with the same pid.
    #[must_use]
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| {
            stat.started_at == self.started_at && !matches!(stat.state, 'Z' | 'X')
        })
    }

    /// Sends the signal, and SIGKILL when it has not ended after `bound`.
    ///
    /// # Errors
    ///
    /// When it survives.
    pub fn stop(self, stop: StopSignal, bound: Duration) -> Result<()> {
        self.signal(stop.signal())?;
        if self.ends_within(bound) {
            return Ok(());
        }
        self.signal(Signal::SIGKILL)?;
        ensure!(self.ends_within(KILL_BOUND), "process {} survives SIGKILL", self.pid);
        Ok(())
    }

    /// Sends SIGKILL to the process and its children, and waits until all have ended: PostgreSQL's children would run
    /// on for a while and keep a new server from starting.
    ///
    /// # Errors
    ///
    /// When they survive.
    pub fn kill(self) -> Result<()> {
        // A stopped process starts no more children while they are collected.
        self.signal(Signal::SIGSTOP)?;
        let mut family = self.children();
        family.push(self);
        family.iter().try_for_each(|process| process.signal(Signal::SIGKILL))?;
        for process in family {
            ensure!(process.ends_within(KILL_BOUND), "process {} survives SIGKILL", process.pid);
        }
        Ok(())
    }

    /// Sends SIGSTOP to the process and its children. When this returns, none of them runs until
    /// [`ServerProcess::resume`].
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn pause(self) -> Result<()> {
        self.stop_and_wait()?;
        self.children().iter().try_for_each(|child| child.stop_and_wait())
    }

    /// Waits until it has stopped: a thread on another processor stops a little after the signal.
    fn stop_and_wait(self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        let deadline = Instant::now() + KILL_BOUND;
        while self.is_alive() && !self.is_stopped() {
            ensure!(Instant::now() < deadline, "process {} does not stop", self.pid);
            sleep(POLL);
        }
        Ok(())
    }

    /// True when every thread of it is stopped.
    fn is_stopped(self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return true };
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat"));
            stat.ok().and_then(|stat| parse_stat(&stat)).is_none_or(|stat| stat.state == 'T')
        })
    }

    /// Sends SIGCONT to the process and its children.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn resume(self) -> Result<()> {
        self.children().iter().try_for_each(|child| child.signal(Signal::SIGCONT))?;
        self.signal(Signal::SIGCONT)
    }

    fn children(self) -> Vec<Self> {
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        let child = |pid| {
            let stat = stat(pid).filter(|stat| stat.parent == self.pid)?;
            Some(Self { pid, started_at: stat.started_at })
        };
        processes.flatten().filter_map(pid).filter_map(child).collect()
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

impl StopSignal {
    fn signal(self) -> Signal {
        match self {
            Self::Terminate => Signal::SIGTERM,
            Self::Interrupt => Signal::SIGINT,
        }
    }
}

/// Fields 3, 4 and 22 of `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: i32,
    started_at: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(line: &str) -> Option<Stat> {
    // Field 2 is the program's name in brackets. It may contain blanks and brackets itself.
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Stat { state, parent, started_at: fields.nth(17)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    use super::*;

    const BOUND: Duration = Duration::from_secs(5);

    fn shell(script: &str) -> (Child, ServerProcess) {
        let mut shell = Command::new("sh");
        let child = shell.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let process = ServerProcess::of(child.id()).unwrap();
        (child, process)
    }

    #[test]
    fn stat_is_read_past_a_name_with_brackets_and_blanks() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse_stat(line), Some(Stat { state: 'S', parent: 1, started_at: 4711 }));
    }

    #[test]
    fn a_stopped_process_has_ended() {
        let (mut child, process) = shell("exec sleep 60");
        assert!(process.is_alive());
        process.stop(StopSignal::Terminate, BOUND).unwrap();
        assert!(!process.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_ignores_the_signal_is_killed() {
        let (mut child, process) = shell("trap '' TERM; echo deaf; while :; do sleep 0.05; done");
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        process.stop(StopSignal::Terminate, Duration::from_millis(300)).unwrap();
        assert!(!process.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn the_children_of_a_killed_process_are_killed() {
        let (mut child, process) = shell("sleep 60 & echo; wait");
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
        let children = process.children();
        assert_eq!(children.len(), 1);
        process.kill().unwrap();
        assert!(!children[0].is_alive() && !process.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn a_paused_process_is_stopped_with_its_children_until_resumed() {
        let (mut child, process) = shell("sleep 60 & echo; wait");
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
        let states = || {
            let family = [vec![process], process.children()].concat();
            family.iter().map(|it| stat(it.pid).unwrap().state).collect::<String>()
        };
        let until = |wanted: &str| {
            while states() != wanted {
                sleep(POLL);
            }
        };
        process.pause().unwrap();
        until("TT");
        process.resume().unwrap();
        until("SS");
        process.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn another_process_with_the_same_pid_is_left_alone() {
        let (mut child, process) = shell("exec sleep 60");
        let earlier = ServerProcess { started_at: process.started_at - 1, ..process };
        earlier.stop(StopSignal::Terminate, BOUND).unwrap();
        assert!(process.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
