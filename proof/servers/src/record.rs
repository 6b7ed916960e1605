//! What a running server leaves on disk, so that another process can stop exactly it.
//!
//! One file per server, never shared: two runs at once have nothing to overwrite.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::process::{Process, Stop};
use crate::site;

const FILE: &str = "state.json";

/// How long a server may take to end when asked.
const STOP_BOUND: Duration = Duration::from_secs(15);

/// One running server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What it is called.
    pub name: String,
    /// Which process it is.
    pub process: Process,
    /// Where it listens.
    pub port: u16,
    /// Its address.
    pub url: String,
    /// The environment variable that tells tests its address.
    pub variable: String,
    /// Who stops it.
    pub owner: Owner,
    /// How it is asked to end.
    pub stop: Stop,
    /// Its log and this record.
    pub folder: PathBuf,
    /// What it writes.
    pub data: PathBuf,
}

/// Who stops the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// The chore that started it, when it ends.
    Chore(Process),
    /// `servers down`.
    Checkout,
}

impl Record {
    /// Every record below `home`.
    #[must_use]
    pub fn all(home: &Path) -> Vec<Self> {
        let Ok(folders) = fs::read_dir(home) else { return Vec::new() };
        let mut records: Vec<Self> = folders.flatten().filter_map(|it| load(&it.path())).collect();
        records.sort_by(|a, b| (&a.name, a.process.pid).cmp(&(&b.name, b.process.pid)));
        records
    }

    /// Writes the record beside its final name first: a reader sees all of it or nothing.
    pub(crate) fn save(&self) -> Result<()> {
        let draft = self.folder.join("state.draft");
        fs::write(&draft, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&draft, self.folder.join(FILE)).context("cannot write the server's record")
    }

    /// Ends the server and removes its folders. Doing so twice is harmless.
    ///
    /// # Errors
    ///
    /// When it survives, or a folder stays.
    pub fn stop(&self) -> Result<()> {
        self.end()?;
        site::remove(&self.data)?;
        site::remove(&self.folder)
    }

    /// Ends the server, if it still runs.
    pub(crate) fn end(&self) -> Result<()> {
        self.process
            .stop(self.stop, STOP_BOUND)
            .with_context(|| format!("cannot stop {}", self.name))
    }

    /// True when nobody else is going to stop it: handed to the checkout, or its chore was killed.
    #[must_use]
    pub fn is_free(&self) -> bool {
        match self.owner {
            Owner::Chore(chore) => !chore.is_alive(),
            Owner::Checkout => true,
        }
    }
}

fn load(folder: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()
}
