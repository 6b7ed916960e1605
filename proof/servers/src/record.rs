//! The record of a running server on disk, with which another process can stop exactly that server.
//!
//! One file per server: concurrent runs overwrite nothing of each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::process::{ServerProcess, StopSignal};
use crate::site;

const FILE: &str = "state.json";

/// How long a server may take to end after its stop signal.
const STOP_BOUND: Duration = Duration::from_secs(15);

/// The record of a running server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Its name.
    pub name: String,
    /// Its process.
    pub process: ServerProcess,
    /// Its port.
    pub port: u16,
    /// Its URL.
    pub url: String,
    /// The environment variable that holds its URL for tests.
    pub variable: String,
    /// What stops it.
    pub owner: ServerOwner,
    /// Its stop signal.
    pub stop: StopSignal,
    /// The folder with its log and this record.
    pub folder: PathBuf,
    /// The folder with its data.
    pub data: PathBuf,
}

/// What stops a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerOwner {
    /// The task that started it, at its end.
    #[serde(alias = "Chore")]
    Task(ServerProcess),
    /// `cargo xtask servers down`.
    Checkout,
}

impl ServerRecord {
    /// Every record below `home`.
    #[must_use]
    pub fn all(home: &Path) -> Vec<Self> {
        let Ok(folders) = fs::read_dir(home) else { return Vec::new() };
        let mut records: Vec<Self> = folders.flatten().filter_map(|it| load(&it.path())).collect();
        records.sort_by(|a, b| (&a.name, a.process.pid).cmp(&(&b.name, b.process.pid)));
        records
    }

    /// Writes the record under another name and renames it: a reader sees all of it or nothing.
    pub(crate) fn save(&self) -> Result<()> {
        let draft = self.folder.join("state.draft");
        fs::write(&draft, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&draft, self.folder.join(FILE)).context("cannot write the server's record")
    }

    /// Stops the server and removes its folders. A second call does nothing.
    ///
    /// # Errors
    ///
    /// When it does not end, or a folder cannot be removed.
    pub fn stop(&self) -> Result<()> {
        self.end()?;
        site::remove(&self.data)?;
        site::remove(&self.folder)
    }

    /// Stops the server, if it still runs.
    pub(crate) fn end(&self) -> Result<()> {
        self.process
            .stop(self.stop, STOP_BOUND)
            .with_context(|| format!("cannot stop {}", self.name))
    }

    /// True when no running task is going to stop it: it was handed to `servers down`, or its task was killed.
    #[must_use]
    pub fn is_free(&self) -> bool {
        match self.owner {
            ServerOwner::Task(task) => !task.is_alive(),
            ServerOwner::Checkout => true,
        }
    }
}

fn load(folder: &Path) -> Option<ServerRecord> {
    serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()
}
