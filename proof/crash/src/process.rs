//! Processes that are started, stopped and killed by id. None of them outlives the harness.
//!
//! Three safeguards: a dropped [`ChildProcess`] is killed and reaped (end of a test, panic); a child exits when its
//! stdin ends (the harness was killed); and on Linux the kernel kills a child, stopped or not, when the harness
//! ends. A child asks for the last two with [`die_with_parent`].

use std::{
    io::{self, Read},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{LazyLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// A running process. Dropped, it is killed and reaped.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    /// The kernel closes it when this process ends, for any reason.
    lifeline: Option<ChildStdin>,
}

impl ChildProcess {
    /// Starts `command` with a pipe for its stdin. The pipe ends with the harness.
    ///
    /// # Errors
    ///
    /// When the program cannot be started.
    pub fn spawn(mut command: Command) -> Result<Self> {
        let name = format!("{command:?}");
        command.stdin(Stdio::piped());
        let mut child =
            spawn_on_permanent_thread(command).with_context(|| format!("start {name}"))?;
        let lifeline = child.stdin.take();
        Ok(Self { child, lifeline })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its stdout, if that was piped. `None` the second time.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Sends SIGKILL and waits for the end. The status shows if the process had ended before by itself.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        // The id cannot be reused before the process is reaped.
        self.signal(Signal::SIGKILL)?;
        Ok(self.child.wait()?)
    }

    /// Sends SIGSTOP: the process does nothing until [`ChildProcess::resume`].
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn pause(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Sends SIGCONT.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn resume(&mut self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Its status, if it has ended.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    ///
    /// When it is still running after `bound`.
    pub fn wait_within(&mut self, bound: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + bound;
        while Instant::now() < deadline {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(2));
        }
        bail!("process {} did not end within {bound:?}", self.id())
    }

    /// Closes its stdin: a child that called [`die_with_parent`] exits.
    pub fn hang_up(&mut self) {
        self.lifeline = None;
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        let id = Pid::from_raw(i32::try_from(self.id())?);
        kill(id, signal).with_context(|| format!("{signal} to process {id}"))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Called by a child at its start, so that it ends with the harness.
///
/// # Errors
///
/// When there is no stdin to watch.
pub fn die_with_parent() -> Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // A parent that died before the line above has closed this pipe.
    thread::Builder::new().name("lifeline".into()).spawn(|| {
        let mut rest = Vec::new();
        let _ = io::stdin().read_to_end(&mut rest);
        std::process::exit(3);
    })?;
    Ok(())
}

type SpawnRequest = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts `command` on a thread that never ends. Linux takes the thread that started a child for its parent, and
/// signals the child when that thread ends.
fn spawn_on_permanent_thread(command: Command) -> io::Result<Child> {
    static STARTER: LazyLock<mpsc::Sender<SpawnRequest>> = LazyLock::new(|| {
        let (requests, inbox) = mpsc::channel::<SpawnRequest>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        });
        requests
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (reply, child) = mpsc::channel();
    STARTER.send((command, reply)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}
