//! The ledger: a process of its own that writes down every run and every effect, and answers only
//! when the line is on the disk. It knows nothing of the store, and outlives the workers.

mod client;
mod server;

pub use client::Ledger;
pub use server::serve;

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{event::Hex, key::KeyId};

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, by [`mono`](crate::mono).
    pub t_mono: u64,
    /// In which process.
    pub process: u32,
    /// Names the run; no two runs share one.
    pub run: Hex,
    /// For which key.
    pub key: KeyId,
    /// The random half of the owner, shortened.
    pub nonce: Hex,
    /// The counting half of the owner.
    pub token: u64,
    /// Which attempt.
    pub attempt: u32,
    /// Which of a few payloads.
    pub fingerprint: u8,
    /// What is attested.
    pub what: What,
}

/// What a line attests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The work began.
    Start,
    /// The work took effect.
    Effect,
}

/// Reads a ledger. A last line that was cut off was never acknowledged and does not count.
///
/// # Errors
///
/// When the file cannot be read, or a whole line is not an entry.
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let entries = whole.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    entries.with_context(|| format!("a line of {} is no entry", path.display()))
}
