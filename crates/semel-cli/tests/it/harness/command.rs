//! Runs the binary in a folder and an environment of its own.

use std::{
    env, io,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::time::timeout;

/// A command ends within this time.
const BOUND: Duration = Duration::from_secs(20);

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    /// Asserts one of these exit codes, and that stderr contains all these words.
    #[track_caller]
    pub(crate) fn assert_stderr(&self, codes: &[i32], words: &[&str]) {
        assert!(self.code.is_some_and(|code| codes.contains(&code)), "{self:#?}");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing: {self:#?}");
        }
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
    }
}

/// The binary, without the `SEMEL_*` variables of the environment in which the tests run.
pub(crate) fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    command.current_dir(folder);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("SEMEL_") {
            command.env_remove(name);
        }
    }
    command
}

/// An output whose reader is closed.
pub(crate) fn closed_pipe() -> Stdio {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct KillOnDrop(pub(crate) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the binary to its end.
pub(crate) async fn run(folder: &Path, args: &[&str]) -> CommandOutput {
    let mut command = command(folder);
    command.args(args);
    run_command(command).await
}

/// Runs a command that may have variables, to its end.
pub(crate) async fn run_command(command: Command) -> CommandOutput {
    let mut command = tokio::process::Command::from(command);
    let output = timeout(BOUND, command.kill_on_drop(true).output());
    let output = output.await.unwrap_or_else(|_| panic!("it did not end")).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    CommandOutput {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}
