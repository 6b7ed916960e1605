//! `cargo xtask bench bakeoff`: the embedded store's log beside fjall, which was the other choice,
//! and the bare log. See docs/adr/0012-embedded-store.md.

mod lsm;

use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use semel_bench::{
    durable::{Done, Load, RawLog, describe, fill, percent},
    report::line,
};
use semel_store_embedded::EmbeddedStore;

use lsm::Lsm;

/// How much to measure.
#[derive(Parser)]
struct Options {
    /// Keys that are there before anything is measured.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Runs of each side, taken in turns.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Milliseconds of each run.
    #[arg(long, default_value_t = 2000)]
    millis: u64,
    /// Where to write; a temporary folder if not given.
    #[arg(long)]
    folder: Option<std::path::PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let folder = match &options.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    println!("{} keys, 300-byte outcomes, all sides in turns\n", options.keys);
    let raw = RawLog::open(&folder.path().join("raw"))?;
    let store = EmbeddedStore::open(folder.path().join("store"))?;
    let lsm = Lsm::open(&folder.path().join("fjall"))?;
    fill(&raw, options.keys)?;
    fill(&store, options.keys)?;
    fill(&lsm, options.keys)?;
    let mut first = options.keys;
    for callers in [1, 64, 1024] {
        let mut runs: [Vec<Done>; 3] = Default::default();
        for _ in 0..options.repeats {
            let load = Load { callers, time: Duration::from_millis(options.millis), first };
            runs[0].push(load.run(&raw)?);
            runs[1].push(load.run(&store)?);
            runs[2].push(load.run(&lsm)?);
            first += runs.iter().filter_map(|runs| runs.last()).map(|done| done.keys).max().unwrap_or(0);
        }
        let [mut raw, mut store, mut lsm] = runs;
        let (ratio, low, high) = percent(&store, &lsm);
        describe(&format!("{callers} callers, bare log"), &mut raw);
        describe(&format!("{callers} callers, store"), &mut store);
        describe(&format!("{callers} callers, fjall"), &mut lsm);
        line("", &format!("store is {ratio:.0} % of fjall ({low:.0}–{high:.0})"), "", None);
    }
    Ok(())
}
