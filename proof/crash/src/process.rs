//! Processes that are started, stopped and killed by id, and none of which outlives the harness.
//!
//! Three nets: a dropped [`Process`] is killed and reaped (end of a test, panic); a child whose stdin
//! ends leaves by itself (the harness was killed); and on Linux the kernel kills a child, stopped or
//! not, when the harness is gone. A child asks for the last two with [`die_with_parent`].

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
pub struct Process {
    child: Child,
    /// Ends when this process does, however it does.
    lifeline: Option<ChildStdin>,
}

impl Process {
    /// Starts `command` with a pipe for its stdin, which it may watch to see the harness go.
    ///
    /// # Errors
    ///
    /// When the program cannot be started.
    pub fn spawn(mut command: Command) -> Result<Self> {
        let name = format!("{command:?}");
        command.stdin(Stdio::piped());
        let mut child = on_lasting_thread(command).with_context(|| format!("start {name}"))?;
        let lifeline = child.stdin.take();
        Ok(Self { child, lifeline })
    }

    /// The number the kernel knows it by.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it prints, if its stdout was piped; once.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// SIGKILL, then waits for the end. A process that ended before by itself says so in its status.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        // Until it is reaped its number cannot be another's.
        self.signal(Signal::SIGKILL)?;
        Ok(self.child.wait()?)
    }

    /// SIGSTOP: nothing in it moves until [`Process::resume`].
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn pause(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// SIGCONT.
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

    /// Waits for its own end.
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

    /// Lets go of its stdin: a child that watches it leaves.
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

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Called by a child at its start: it ends when the harness does.
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

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// Linux takes the thread that started a child for its parent: when that thread ends, the child is
/// told that its parent died. So one thread starts them all and never ends.
fn on_lasting_thread(command: Command) -> io::Result<Child> {
    static STARTER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (reply, child) = mpsc::channel();
    STARTER.send((command, reply)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}
