//! A running worker, and its flags and settings.

use std::{
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{
    CommandOutput, JetStream, PATIENCE, TestUpstream, command::command, process::ChildProcess,
    run_command, until,
};

/// The flags and the semel.toml of a worker. Each setup has a folder of its own.
#[derive(Clone, Debug)]
pub(crate) struct WorkerSetup {
    flags: Vec<(String, String)>,
    variables: Vec<(String, OsString)>,
    folder: Arc<TempDir>,
}

impl WorkerSetup {
    /// A worker from this stream to this handler, with a store and dead letters in its folder.
    pub(crate) fn new(stream: &JetStream, handler: &TestUpstream) -> Self {
        Self::from(&stream.url(), handler)
    }

    /// The same from the source with this URL.
    pub(crate) fn from(source: &str, handler: &TestUpstream) -> Self {
        Self::bare()
            .flag("--source", source)
            .flag("--handler", &format!("http://{}/events", handler.address))
            .flag("--dead-letter", "file:dead-letters")
            .flag("--store", "file:data")
    }

    /// A worker without settings.
    pub(crate) fn bare() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self { flags: Vec::new(), variables: Vec::new(), folder }
    }

    /// Sets or replaces a flag.
    pub(crate) fn flag(self, name: &str, value: &str) -> Self {
        let mut setup = self.without(name);
        setup.flags.push((name.to_owned(), value.to_owned()));
        setup
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.flags.retain(|(it, _)| it != name);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// The content of `semel.toml`.
    pub(crate) fn config(self, text: &str) -> Self {
        fs::write(self.folder().join("semel.toml"), text).unwrap();
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts, and waits until it consumes.
    pub(crate) async fn start(&self) -> WorkerProcess {
        let worker = self.begin();
        until("the worker consumes", async || {
            let stderr = worker.stderr();
            assert!(!stderr.contains("error: "), "{stderr}");
            stderr.contains("consuming ")
        })
        .await;
        worker
    }

    /// Starts without waiting.
    pub(crate) fn begin(&self) -> WorkerProcess {
        let process = ChildProcess::spawn(self.command());
        WorkerProcess { process, _folder: self.folder.clone() }
    }

    /// Runs a worker that ends by itself.
    pub(crate) async fn run(&self) -> CommandOutput {
        run_command(self.command()).await
    }

    fn command(&self) -> std::process::Command {
        let mut command = command(self.folder());
        command.arg("worker").envs(self.variables.iter().cloned());
        for (name, value) in &self.flags {
            command.arg(name).arg(value);
        }
        command
    }

    /// Runs `semel dead-letters` with these words, on the dead letters and the store of this worker.
    pub(crate) async fn dead_letters(&self, words: &[&str]) -> CommandOutput {
        let mut command = command(self.folder());
        command.arg("dead-letters").args(words).envs(self.variables.iter().cloned());
        for (name, value) in &self.flags {
            let name = match name.as_str() {
                "--dead-letter" | "--store" | "--namespace" => name,
                "--source" => "--to",
                _ => continue,
            };
            command.arg(name).arg(value);
        }
        run_command(command).await
    }

    /// Runs `semel doctor` with the settings of this worker.
    pub(crate) async fn doctor(&self, words: &[&str]) -> CommandOutput {
        let mut command = command(self.folder());
        command.arg("doctor").args(words).envs(self.variables.iter().cloned());
        let flags = self.flags.iter().filter(|(name, _)| name != "--handler");
        for (name, value) in flags {
            command.arg(name).arg(value);
        }
        run_command(command).await
    }

    /// The report of `semel doctor --json`.
    pub(crate) async fn diagnosis(&self, code: i32) -> Value {
        let ended = self.doctor(&["--json"]).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(code), ""), "{ended:#?}");
        serde_json::from_str(&ended.stdout).unwrap()
    }

    /// The dead letters, the oldest first.
    pub(crate) async fn listed(&self) -> Vec<Value> {
        let listed = self.dead_letters(&["list", "--json"]).await;
        assert_eq!(listed.code, Some(0), "{listed:?}");
        listed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The files of the dead letters.
    pub(crate) fn letter_files(&self) -> Vec<PathBuf> {
        let Ok(files) = fs::read_dir(self.folder().join("dead-letters")) else { return Vec::new() };
        let files = files.map(|file| file.unwrap().path());
        files.filter(|file| file.extension().is_some_and(|it| it == "json")).collect()
    }
}

/// A worker that runs. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    process: ChildProcess,
    _folder: Arc<TempDir>,
}

impl WorkerProcess {
    /// The address of the admin listener.
    pub(crate) async fn admin(&mut self) -> SocketAddr {
        self.process.address_after("admin on http://").await
    }

    pub(crate) fn stderr(&self) -> String {
        self.process.stderr()
    }

    pub(crate) fn sigterm(&self) {
        self.process.signal(Signal::TERM);
    }

    pub(crate) fn sighup(&self) {
        self.process.signal(Signal::HUP);
    }

    /// Kills the process, like a power failure.
    pub(crate) async fn sigkill(mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(PATIENCE).await;
    }

    /// Ends it, and asserts that it drained.
    pub(crate) async fn stop(mut self) {
        self.sigterm();
        assert_eq!(self.wait_exit().await, Some(0), "{}", self.stderr());
    }

    /// The exit code.
    pub(crate) async fn wait_exit(&mut self) -> Option<i32> {
        self.process.wait(Duration::from_secs(30)).await.code()
    }
}
