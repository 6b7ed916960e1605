//! `cargo xtask bench NAME`: the time that semel takes, compared in one run with what the machine can do.

mod batcher;
mod embedded;
mod memory;

use clap::Parser;

/// The benchmark to run.
#[derive(Parser)]
enum TimeBench {
    /// The memory store beside a plain sharded map.
    Memory(memory::MemoryBenchOptions),
    /// The embedded store beside a bare log with the same bytes.
    Embedded(embedded::EmbeddedBenchOptions),
    /// The auto-batcher beside a channel.
    Batcher(batcher::BatcherBenchOptions),
}

fn main() -> anyhow::Result<()> {
    match TimeBench::parse() {
        TimeBench::Memory(options) => memory::run(&options),
        TimeBench::Embedded(options) => embedded::run(&options),
        TimeBench::Batcher(options) => batcher::run(&options),
    }
}
