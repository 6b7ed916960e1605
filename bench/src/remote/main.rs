//! `cargo xtask bench redis|postgres|nats|inbox|cached`: stores on a server, compared in one run with what the server
//! itself can do.

mod cached;
mod callers;
mod inbox;
mod nats;
mod pipeliner;
mod postgres;
mod redis;
mod waking;

use clap::Parser;

/// The same allocator as in the command `semel`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What to measure.
#[derive(Parser)]
enum RemoteBench {
    /// The Redis store beside redis-benchmark.
    Redis(redis::RedisBenchOptions),
    /// The PostgreSQL store beside pgbench and a bare batch insert.
    Postgres(postgres::PostgresBenchOptions),
    /// The NATS store beside plain publishes.
    Nats(nats::NatsBenchOptions),
    /// The inbox beside the same transaction without it.
    Inbox(inbox::InboxBenchOptions),
    /// The cache: a hit beside the memory store, a miss beside the store behind it.
    Cached(cached::CachedBenchOptions),
}

fn main() -> anyhow::Result<()> {
    // One thread for the callers leaves a core to the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match RemoteBench::parse() {
            RemoteBench::Redis(options) => redis::run(&options).await,
            RemoteBench::Postgres(options) => postgres::run(&options).await,
            RemoteBench::Nats(options) => nats::run(&options).await,
            RemoteBench::Inbox(options) => inbox::run(&options).await,
            RemoteBench::Cached(options) => cached::run(&options).await,
        }
    })
}
