//! `cargo xtask bench redis|postgres|nats|inbox|cached`: a store on a server beside what the server itself can do, in
//! one run.

mod cached;
mod callers;
mod inbox;
mod nats;
mod pipeliner;
mod postgres;
mod redis;
mod waking;

use clap::Parser;

/// As in the command `semel`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What to measure.
#[derive(Parser)]
enum Bench {
    /// The Redis store beside redis-benchmark.
    Redis(redis::Options),
    /// The PostgreSQL store beside pgbench and a bare batch insert.
    Postgres(postgres::Options),
    /// The NATS store beside plain publishes.
    Nats(nats::Options),
    /// The inbox beside the same transaction without it.
    Inbox(inbox::Options),
    /// The cache: a hit beside the memory store, a miss beside the store behind it.
    Cached(cached::Options),
}

fn main() -> anyhow::Result<()> {
    // Callers on one thread, and a core for the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match Bench::parse() {
            Bench::Redis(options) => redis::run(&options).await,
            Bench::Postgres(options) => postgres::run(&options).await,
            Bench::Nats(options) => nats::run(&options).await,
            Bench::Inbox(options) => inbox::run(&options).await,
            Bench::Cached(options) => cached::run(&options).await,
        }
    })
}
