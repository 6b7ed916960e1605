//! Child processes. Each runs in a process group of its own, which is killed when its guard is dropped, so that
//! neither a failed nor an interrupted task leaves a compiler or a test binary behind.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

const POLL: Duration = Duration::from_millis(20);

static STATE: Mutex<GroupState> = Mutex::new(GroupState::Open(Vec::new()));

/// The running groups. After an interrupt no group may start.
enum GroupState {
    Open(Vec<Pid>),
    Interrupted,
}

/// Runs `command` to its end. Any result but success is an error.
///
/// # Errors
///
/// When it cannot be started or fails.
pub fn run(command: &mut Command) -> Result<()> {
    let status = ProcessGroup::spawn(command)?.wait()?;
    ensure!(status.success(), "`{}` ended with {status}", line(command));
    Ok(())
}

/// Like [`run`], but kills the whole group after `bound`.
///
/// # Errors
///
/// When it cannot be started, fails or takes too long.
pub fn run_within(command: &mut Command, bound: Duration) -> Result<()> {
    let Some(status) = ProcessGroup::spawn(command)?.wait_within(bound)? else {
        bail!("`{}` ran longer than {} s", line(command), bound.as_secs());
    };
    ensure!(status.success(), "`{}` ended with {status}", line(command));
    Ok(())
}

/// Runs `command` and returns its stdout. Its stderr is ours.
///
/// # Errors
///
/// When it cannot be started or fails.
pub fn capture(command: &mut Command) -> Result<String> {
    let mut group = ProcessGroup::spawn(command.stdout(Stdio::piped()))?;
    let mut text = String::new();
    if let Some(mut output) = group.leader.stdout.take() {
        output
            .read_to_string(&mut text)
            .with_context(|| format!("`{}` printed no text", line(command)))?;
    }
    let status = group.wait()?;
    ensure!(status.success(), "`{}` ended with {status}", line(command));
    Ok(text)
}

/// Terminates every running group and forbids new ones.
pub fn interrupt() {
    let GroupState::Open(groups) = std::mem::replace(&mut *state(), GroupState::Interrupted) else {
        return;
    };
    for group in groups {
        let _ = killpg(group, Signal::SIGTERM);
    }
}

/// Fails after an interrupt.
///
/// # Errors
///
/// After [`interrupt`].
pub fn permit() -> Result<()> {
    ensure!(matches!(*state(), GroupState::Open(_)), "interrupted");
    Ok(())
}

/// The pid in the type that `nix` takes.
///
/// # Errors
///
/// Never in practice: pids fit.
pub fn pid(child: &Child) -> Result<Pid> {
    Ok(Pid::from_raw(child.id().try_into()?))
}

/// A command in the background. Dropped, it kills its process group.
#[derive(Debug)]
pub struct Service(ProcessGroup);

impl Service {
    /// Starts the command.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        ProcessGroup::spawn(command).map(Self)
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.0.leader.try_wait()?)
    }

    /// Sends SIGTERM and waits. Any result but success within `bound` is an error.
    ///
    /// # Errors
    ///
    /// When it does not end in time, or fails.
    pub fn stop(mut self, bound: Duration) -> Result<()> {
        // Only a process that is not reaped still owns its pid.
        if self.status()?.is_none() {
            kill(self.0.id, Signal::SIGTERM)?;
        }
        let Some(status) = self.0.wait_within(bound)? else {
            bail!("it did not end within {} s after SIGTERM", bound.as_secs());
        };
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

#[derive(Debug)]
struct ProcessGroup {
    leader: Child,
    id: Pid,
}

impl ProcessGroup {
    fn spawn(command: &mut Command) -> Result<Self> {
        permit()?;
        let leader = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run `{}`", line(command)))?;
        let id = pid(&leader)?;
        let group = Self { leader, id };
        match &mut *state() {
            GroupState::Open(groups) => groups.push(id),
            // An interrupt came in between: the guard kills the new process.
            GroupState::Interrupted => bail!("interrupted"),
        }
        Ok(group)
    }

    fn wait(mut self) -> Result<ExitStatus> {
        Ok(self.leader.wait()?)
    }

    fn wait_within(mut self, bound: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + bound;
        while Instant::now() < deadline {
            if let Some(status) = self.leader.try_wait()? {
                return Ok(Some(status));
            }
            sleep(POLL);
        }
        Ok(None)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let GroupState::Open(groups) = &mut *state() {
            groups.retain(|group| *group != self.id);
        }
        // Only a leader that is not reaped still owns the id of the group.
        if matches!(self.leader.try_wait(), Ok(None)) {
            let _ = killpg(self.id, Signal::SIGKILL);
            let _ = self.leader.wait();
        }
    }
}

fn state() -> std::sync::MutexGuard<'static, GroupState> {
    STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or_default().to_string_lossy()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failing_command_is_named_in_the_error() {
        let error = run(&mut shell("exit 3")).unwrap_err().to_string();
        assert!(error.contains("sh -c exit 3") && error.contains("3"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named_in_the_error() {
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.to_string().contains("cannot run `no-such-program-here`"), "{error}");
    }

    #[test]
    fn a_service_has_to_end_well_when_asked() {
        let ready = std::env::temp_dir().join(format!("semel-service-{}", std::process::id()));
        let stop = |answer: &str, bound: u64| {
            let script = format!(
                "trap '{answer}' TERM; touch {0}; while :; do sleep 0.02; done",
                ready.display()
            );
            let service = Service::start(&mut shell(&script)).unwrap();
            while !ready.exists() {
                sleep(POLL);
            }
            std::fs::remove_file(&ready).unwrap();
            service.stop(Duration::from_millis(bound))
        };
        stop("exit 0", 10_000).unwrap();
        assert!(stop("exit 4", 10_000).unwrap_err().to_string().contains('4'));
        assert!(stop("", 200).unwrap_err().to_string().contains("did not end"));
    }

    #[test]
    fn a_command_past_its_bound_dies_with_its_children() {
        let started = Instant::now();
        let error =
            run_within(&mut shell("sleep 30 & sleep 30"), Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().contains("longer than"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
