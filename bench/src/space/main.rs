//! `cargo xtask bench NAME`: the memory that semel takes, counted by allocation.

mod embedded;

use std::path::PathBuf;

use allocation_counter::measure;
use anyhow::Result;
use clap::Parser;
use semel_bench::{
    load::{call, claim_and_complete, keys, with_capacity},
    report::line,
};
use semel_core::{Engine, LabelPolicy};

/// The benchmark to run. Accepts the options of the program `time`, and uses one of them.
#[derive(Parser)]
enum SpaceBench {
    /// The memory store and the engine over it.
    Memory {
        /// The number of records.
        #[arg(long, default_value_t = 1_000_000)]
        keys: u64,
        #[arg(long, hide = true)]
        repeats: Option<usize>,
        #[arg(long, hide = true)]
        calls: Option<u64>,
    },
    /// The embedded store.
    Embedded {
        /// The number of records.
        #[arg(long, default_value_t = 1_000_000)]
        keys: u64,
        #[arg(long, hide = true)]
        repeats: Option<usize>,
        #[arg(long, hide = true)]
        millis: Option<u64>,
        /// The folder to write to. Default: a temporary folder.
        #[arg(long)]
        folder: Option<PathBuf>,
    },
    /// Nothing: the batcher keeps no records.
    #[command(hide = true)]
    Batcher {
        #[arg(long)]
        repeats: Option<usize>,
        #[arg(long)]
        millis: Option<u64>,
    },
}

fn main() -> Result<()> {
    match SpaceBench::parse() {
        SpaceBench::Memory { keys, .. } => memory(keys),
        SpaceBench::Embedded { keys, folder, .. } => embedded::run(keys, folder),
        SpaceBench::Batcher { .. } => Ok(()),
    }
}

fn memory(keys: u64) -> Result<()> {
    for (labels, what) in [(LabelPolicy::Keep, "with labels"), (LabelPolicy::Redact, "without")] {
        let memory = with_capacity(keys);
        let fill = || (0..keys).for_each(|i| claim_and_complete(&memory, i, labels));
        let bytes = measure(fill).bytes_current as f64 / keys as f64;
        let what = format!("bytes per record, {what}");
        line(&what, &format!("{bytes:.0} B"), "≤ 700 B", Some(bytes <= 700.0));
    }
    allocations()
}

fn allocations() -> Result<()> {
    const CALLS: u64 = 1000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let engine = Engine::builder().store(with_capacity(CALLS)).build()?;
    for what in ["first run", "replay"] {
        let keys = keys(CALLS);
        let calls = async {
            for key in keys {
                call(&engine, key).await.expect("the memory store answers");
            }
        };
        let counted = measure(|| runtime.block_on(calls)).count_total;
        let each = counted as f64 / CALLS as f64;
        line(&format!("allocations per {what}, engine"), &format!("{each:.1}"), "", None);
    }
    Ok(())
}
