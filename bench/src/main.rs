//! `cargo xtask bench NAME`: what semel costs, beside what the machine can do, in one run.

mod memory;
mod report;

use std::alloc::System;

use clap::Parser;
use stats_alloc::StatsAlloc;

/// Counts every allocation of this process.
#[global_allocator]
static ALLOCATOR: StatsAlloc<System> = StatsAlloc::system();

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
