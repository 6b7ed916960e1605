//! A running gateway, and its flags and settings.

use std::{ffi::OsString, fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{
    ClientConnection, ClientResponse, TestRequest, TestUpstream, command::command,
    process::ChildProcess,
};

/// The flags and the semel.toml of a gateway. Each setup has a folder of its own.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    flags: Vec<(String, Option<String>)>,
    variables: Vec<(String, OsString)>,
    config: Option<String>,
    folder: Arc<TempDir>,
}

impl Setup {
    /// A gateway to this upstream, with a store in memory and anonymous callers.
    pub(crate) fn to(upstream: &TestUpstream) -> Self {
        Self::new().flag("--upstream", &format!("http://{}", upstream.address))
    }

    /// A gateway without an upstream.
    pub(crate) fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self { flags: Vec::new(), variables: Vec::new(), config: None, folder }
            .flag("--listen", "127.0.0.1:0")
            .flag("--store", "memory:")
            .flag("--principal", "anonymous")
    }

    /// Sets or replaces a flag.
    pub(crate) fn flag(self, name: &str, value: &str) -> Self {
        let mut setup = self.without(name);
        setup.flags.push((name.to_owned(), Some(value.to_owned())));
        setup
    }

    pub(crate) fn switch(mut self, name: &str) -> Self {
        self.flags.push((name.to_owned(), None));
        self
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
        Self { config: Some(text.to_owned()), ..self }
    }

    /// Uses the embedded store in the setup's folder, which outlives the gateway.
    pub(crate) fn embedded(self) -> Self {
        self.flag("--store", "file:data")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) async fn start(&self) -> GatewayProcess {
        let StartingGateway { mut process, folder } = self.begin();
        let address = process.address_after("listening on http://").await;
        GatewayProcess { process, address, _folder: folder }
    }

    /// Starts without waiting until it listens.
    pub(crate) fn begin(&self) -> StartingGateway {
        if let Some(text) = &self.config {
            fs::write(self.folder().join("semel.toml"), text).unwrap();
        }
        let mut command = command(self.folder());
        command.arg("gateway").envs(self.variables.iter().cloned());
        for (name, value) in &self.flags {
            command.arg(name).args(value);
        }
        StartingGateway { process: ChildProcess::spawn(command), folder: self.folder.clone() }
    }
}

/// A gateway that may not listen yet. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct StartingGateway {
    process: ChildProcess,
    folder: Arc<TempDir>,
}

impl StartingGateway {
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

    /// The exit code.
    pub(crate) async fn wait_exit(&mut self) -> Option<i32> {
        self.process.wait(super::PATIENCE).await.code()
    }
}

/// A gateway that runs. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct GatewayProcess {
    process: ChildProcess,
    pub(crate) address: SocketAddr,
    _folder: Arc<TempDir>,
}

impl GatewayProcess {
    pub(crate) async fn connection(&self) -> ClientConnection {
        ClientConnection::to(self.address).await
    }

    /// Sends a request on a new connection, and reads the response.
    pub(crate) async fn request(&self, request: impl AsRef<TestRequest>) -> ClientResponse {
        let (mut connection, request) = (self.connection().await, request.as_ref());
        connection.write(request.bytes()).await;
        let response = if request.is_head() {
            connection.read_head().await
        } else {
            connection.read_response().await
        };
        response.unwrap_or_else(|| panic!("no response to {request:?}"))
    }

    /// Sends a request on a new connection, without waiting for the response.
    pub(crate) async fn send(&self, request: impl AsRef<TestRequest>) -> ClientConnection {
        let mut connection = self.connection().await;
        connection.write(request.as_ref().bytes()).await;
        connection
    }

    /// The address of the admin listener.
    pub(crate) async fn admin(&mut self) -> SocketAddr {
        self.process.address_after("admin on http://").await
    }

    pub(crate) fn stdout(&self) -> String {
        self.process.stdout()
    }

    pub(crate) fn stderr(&self) -> String {
        self.process.stderr()
    }

    pub(crate) fn sigterm(&self) {
        self.process.signal(Signal::TERM);
    }

    pub(crate) fn sigint(&self) {
        self.process.signal(Signal::INT);
    }

    pub(crate) fn sighup(&self) {
        self.process.signal(Signal::HUP);
    }

    /// Kills the process, like a power failure.
    pub(crate) async fn sigkill(mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(super::PATIENCE).await;
    }

    /// Waits at most `bound` for the exit code.
    pub(crate) async fn wait_exit(&mut self, bound: Duration) -> Option<i32> {
        self.process.wait(bound).await.code()
    }
}
