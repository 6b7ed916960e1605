//! `cargo xtask bench consumer`: events through the whole pipeline, over the source in memory and over NATS.

mod in_memory;
mod nats;

use clap::Parser;

/// The same allocator as in the command `semel`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What to measure.
#[derive(Parser)]
struct ConsumerBench {
    /// The NATS server; a stream and two buckets are made there. Without it, only the source in memory is measured.
    #[arg(long)]
    url: Option<String>,
    /// Messages of each run in memory.
    #[arg(long, default_value_t = 400_000)]
    messages: u64,
    /// Messages of each run over NATS.
    #[arg(long, default_value_t = 40_000)]
    nats_messages: u64,
    /// Runs of each kind.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Handlers that run at the same time.
    #[arg(long, default_value_t = 64)]
    concurrency: usize,
}

fn main() -> anyhow::Result<()> {
    // Metrics are on, as they are in a service.
    metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let options = ConsumerBench::parse();
        in_memory::run(&options).await?;
        match &options.url {
            Some(url) => nats::run(&options, url).await,
            None => Ok(()),
        }
    })
}
