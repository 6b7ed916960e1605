//! Reads and writes evidence in a folder, so that a failed run can be checked again.

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Write},
    path::Path,
};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;

use super::{CheckRules, Evidence};
use crate::ledger;

const HISTORY: &str = "history.jsonl";
const LEDGER: &str = "ledger.jsonl";
const DUMP: &str = "dump.jsonl";

impl Evidence {
    /// Reads the evidence of a failed run.
    ///
    /// # Errors
    ///
    /// When a file is missing or cannot be parsed.
    pub fn read(folder: &Path, rules: CheckRules) -> Result<Self> {
        let dump: Vec<crate::load::DumpedRecord> = lines(&folder.join(DUMP))?;
        let events: Vec<crate::Event> = lines(&folder.join(HISTORY))?;
        let last = events.iter().map(|event| event.t_mono).max().unwrap_or_default();
        let dumped_at = dump.iter().map(|dumped| dumped.t_mono).max().unwrap_or(last);
        Ok(Self { events, ledger: ledger::read(&folder.join(LEDGER))?, dump, dumped_at, rules })
    }

    /// Adds the dump to a folder that has the rest.
    pub(crate) fn keep_dump(&self, folder: &Path) -> Result<()> {
        let mut file = BufWriter::new(File::create(folder.join(DUMP))?);
        for dumped in &self.dump {
            serde_json::to_writer(&mut file, dumped)?;
            file.write_all(b"\n")?;
        }
        Ok(file.flush()?)
    }
}

fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let parse = |line: std::io::Result<String>| Ok(serde_json::from_str(&line?)?);
    let lines = BufReader::new(file).lines().map(parse).collect::<Result<_>>();
    lines.with_context(|| format!("read {}", path.display()))
}
