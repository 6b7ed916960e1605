//! `cargo xtask bench NAME`: what semel takes in memory, allocation by allocation.

mod embedded;

use std::path::PathBuf;

use allocation_counter::measure;
use anyhow::Result;
use clap::Parser;
use semel_bench::{
    load::{call, claim_and_complete, keys, roomy},
    report::line,
};
use semel_core::{Engine, LabelPolicy};

/// What to measure. Takes the options of the other half, and needs one of them.
#[derive(Parser)]
enum Bench {
    /// The memory store and the engine on top of it.
    Memory {
        /// Records to hold.
        #[arg(long, default_value_t = 1_000_000)]
        keys: u64,
        #[arg(long, hide = true)]
        repeats: Option<usize>,
        #[arg(long, hide = true)]
        calls: Option<u64>,
    },
    /// The embedded store.
    Embedded {
        /// Records to hold.
        #[arg(long, default_value_t = 1_000_000)]
        keys: u64,
        #[arg(long, hide = true)]
        repeats: Option<usize>,
        #[arg(long, hide = true)]
        millis: Option<u64>,
        /// Where to write; a temporary folder if not given.
        #[arg(long)]
        folder: Option<PathBuf>,
    },
    /// Nothing: the batcher keeps nothing.
    #[command(hide = true)]
    Batcher {
        #[arg(long)]
        repeats: Option<usize>,
        #[arg(long)]
        millis: Option<u64>,
    },
}

fn main() -> Result<()> {
    match Bench::parse() {
        Bench::Memory { keys, .. } => memory(keys),
        Bench::Embedded { keys, folder, .. } => embedded::run(keys, folder),
        Bench::Batcher { .. } => Ok(()),
    }
}

fn memory(keys: u64) -> Result<()> {
    for (labels, what) in [(LabelPolicy::Keep, "with labels"), (LabelPolicy::Redact, "without")] {
        let memory = roomy(keys);
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
    let engine = Engine::builder().store(roomy(CALLS)).build()?;
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
