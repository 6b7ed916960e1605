//! `cargo xtask bench NAME`: what semel takes in time, beside what the machine can do, in one run.

mod memory;

use clap::Parser;

/// What to measure.
#[derive(Parser)]
enum Bench {
    /// The memory store beside a plain sharded map.
    Memory(memory::Options),
}

fn main() -> anyhow::Result<()> {
    match Bench::parse() {
        Bench::Memory(options) => memory::run(&options),
    }
}
