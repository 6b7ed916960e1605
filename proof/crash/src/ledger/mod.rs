//! The ledger: a process that writes every run and every effect to a file, and acknowledges a line only when it is
//! on the disk. It does not use the store, and it is not killed with the workers.

mod client;
mod server;

pub use client::LedgerClient;
pub use server::serve;

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{event::Hex, key::KeyId};

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// When, by [`mono`](crate::mono).
    pub t_mono: u64,
    /// The number of the process.
    pub process: u32,
    /// The id of the run; no two runs share one.
    pub run: Hex,
    /// The key.
    pub key: KeyId,
    /// The nonce of the owner, shortened.
    pub nonce: Hex,
    /// The token of the owner.
    pub token: u64,
    /// The number of the attempt.
    pub attempt: u32,
    /// The number of the payload.
    pub fingerprint: u8,
    /// What happened.
    #[serde(alias = "what")]
    pub fact: LedgerFact,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerFact {
    /// The work began.
    Start,
    /// The work took effect.
    Effect,
}

/// Reads a ledger. An incomplete last line was never acknowledged and is left out.
///
/// # Errors
///
/// When the file cannot be read, or a complete line is not an entry.
pub fn read(path: &Path) -> Result<Vec<LedgerEntry>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let entries = whole.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    entries.with_context(|| format!("a line of {} is not a ledger entry", path.display()))
}
