//! A process that ends with its guard, with its processor time and memory.

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

/// How long a process may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// A child process, stopped when dropped.
#[derive(Debug)]
pub struct BenchProcess {
    child: Child,
    stop: StopMode,
}

/// How a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// With SIGKILL.
    Kill,
    /// With SIGTERM first, because it has processes of its own to stop.
    Terminate,
}

impl BenchProcess {
    /// Starts `command`.
    ///
    /// # Errors
    ///
    /// When the program cannot be started.
    pub fn start(command: &mut Command, stop: StopMode) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, stop })
    }

    /// Starts this program again with other arguments, and reads the port that it prints.
    ///
    /// # Errors
    ///
    /// When it does not start, or prints no port.
    pub fn start_self(args: &[&str]) -> Result<(Self, u16)> {
        let mut command = Command::new(env::current_exe()?);
        let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Self::start(command, StopMode::Kill)?;
        let output = process.child.stdout.take().context("its output is piped")?;
        let mut port = String::new();
        BufReader::new(output).read_line(&mut port)?;
        Ok((process, port.trim().parse().context("it named no port")?))
    }

    /// True while it runs.
    ///
    /// # Errors
    ///
    /// When the kernel reports an error.
    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// The processor time so far, of all threads and children, in user and kernel mode. The kernel counts in ticks,
    /// mostly of 10 ms.
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

    /// The resident memory in megabytes.
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

impl Drop for BenchProcess {
    fn drop(&mut self) {
        // An error means that it has ended already.
        if self.stop == StopMode::Terminate && matches!(self.is_alive(), Ok(true)) {
            let _ = self.terminate();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends this process with its parent: the parent holds the other end of standard input, which closes when the parent
/// ends for any reason.
pub fn end_with_parent() {
    thread::spawn(|| {
        let ended = io::stdin().read_to_end(&mut Vec::new());
        process::exit(i32::from(ended.is_err()));
    });
}

/// Processor time of a process by `/proc/ID/stat`.
fn ticks(id: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name, in parentheses, may contain spaces. The fields after it begin with the third; processor times are the
    // 14th and the 15th.
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let times = fields.split_whitespace().skip(11).take(2);
    times.map(|ticks| Ok(ticks.parse::<u64>()?)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, stop: StopMode) -> BenchProcess {
        BenchProcess::start(Command::new("sh").args(["-c", script]), stop).unwrap()
    }

    #[test]
    fn the_time_of_children_counts() {
        let busy = shell("(while :; do :; done) & wait", StopMode::Kill);
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
        let process = shell(&script, StopMode::Terminate);
        while !ready.exists() {
            thread::sleep(Duration::from_millis(5));
        }
        drop(process);
        assert!(ended.exists());
    }
}
