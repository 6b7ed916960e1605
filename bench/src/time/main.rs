//! `cargo xtask bench NAME`: what semel takes in time, beside what the machine can do, in one run.

mod batcher;
mod embedded;
mod memory;

use clap::Parser;

/// What to measure.
#[derive(Parser)]
enum Bench {
    /// The memory store beside a plain sharded map.
    Memory(memory::Options),
    /// The embedded store beside a bare log with the same bytes.
    Embedded(embedded::Options),
    /// The auto-batcher beside a channel.
    Batcher(batcher::Options),
}

fn main() -> anyhow::Result<()> {
    match Bench::parse() {
        Bench::Memory(options) => memory::run(&options),
        Bench::Embedded(options) => embedded::run(&options),
        Bench::Batcher(options) => batcher::run(&options),
    }
}
