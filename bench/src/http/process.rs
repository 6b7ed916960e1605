//! A process that ends with its guard, and what it takes of the machine.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read},
    process::{self, Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    param::clock_ticks_per_second,
    process::{Pid, Signal, kill_process},
};

/// How long a process may take to end itself.
const GRACE: Duration = Duration::from_secs(5);

/// A child process, stopped when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stop: Stop,
}

/// How a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At once.
    Kill,
    /// Asked first: it has processes of its own to stop.
    Terminate,
}

impl Process {
    /// Starts `command`.
    ///
    /// # Errors
    ///
    /// When there is no such program, or no process to be had.
    pub fn start(command: &mut Command, stop: Stop) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, stop })
    }

    /// Starts this program anew with other arguments, and reads the port that it prints.
    ///
    /// # Errors
    ///
    /// When it does not start, or prints no port.
    pub fn start_self(args: &[&str]) -> Result<(Self, u16)> {
        let mut command = Command::new(env::current_exe()?);
        let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Self::start(command, Stop::Kill)?;
        let output = process.child.stdout.take().context("its output is piped")?;
        let mut port = String::new();
        BufReader::new(output).read_line(&mut port)?;
        Ok((process, port.trim().parse().context("it named no port")?))
    }

    /// Whether it runs.
    ///
    /// # Errors
    ///
    /// When the kernel does not say.
    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Processor time so far: all threads, its children as well, the kernel's part for them
    /// included. The kernel counts in ticks, mostly of 10 ms.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn cpu(&self) -> Result<Duration> {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
        let children = children.split_whitespace().map(|id| ticks(id.parse()?));
        let ticks = ticks(id)? + children.sum::<Result<u64>>()?;
        Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
    }

    /// Megabytes it holds now.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn megabytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = resident.and_then(|text| text.trim().strip_suffix(" kB"));
        Ok(kilobytes.context("no VmRSS")?.parse::<u64>()? / 1024)
    }

    fn terminate(&mut self) -> Result<()> {
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::TERM)?;
        let deadline = Instant::now() + GRACE;
        while self.is_alive()? && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that it has ended already, and then there is nothing left to do.
        if self.stop == Stop::Terminate && matches!(self.is_alive(), Ok(true)) {
            let _ = self.terminate();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends this process when its parent does: the parent holds the other end of standard input, which
/// closes however the parent ends.
pub fn end_with_parent() {
    thread::spawn(|| {
        let ended = io::stdin().read_to_end(&mut Vec::new());
        process::exit(i32::from(ended.is_err()));
    });
}

/// Processor time of a process by `/proc/ID/stat`.
fn ticks(id: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name, in parentheses, may have spaces of its own. After it come the fields from the third
    // on; those of time are the 14th and the 15th.
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let times = fields.split_whitespace().skip(11).take(2);
    times.map(|ticks| Ok(ticks.parse::<u64>()?)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, stop: Stop) -> Process {
        Process::start(Command::new("sh").args(["-c", script]), stop).unwrap()
    }

    #[test]
    fn the_time_of_children_counts() {
        let busy = shell("(while :; do :; done) & wait", Stop::Kill);
        let id = busy.child.id();
        let children = || fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        while busy.cpu().unwrap() < Duration::from_millis(50) {
            thread::sleep(Duration::from_millis(5));
        }
        let spinning = children().trim().parse().unwrap();
        kill_process(Pid::from_raw(spinning).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn a_process_that_is_asked_to_end_may_do_so_itself() {
        let folder = tempfile::tempdir().unwrap();
        let (ready, ended) = (folder.path().join("ready"), folder.path().join("ended"));
        let script = format!(
            "trap 'touch {ended}; exit' TERM; touch {ready}; while :; do sleep 0.01; done",
            ready = ready.display(),
            ended = ended.display()
        );
        let process = shell(&script, Stop::Terminate);
        while !ready.exists() {
            thread::sleep(Duration::from_millis(5));
        }
        drop(process);
        assert!(ended.exists());
    }
}
