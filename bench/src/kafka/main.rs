//! `cargo xtask bench kafka`: events of a Kafka topic through the pipeline of a consumer, beside a bare consumer; and in
//! batches with the inbox, beside bare batches of claims.

mod bare;
mod counted_source;
mod inbox;
mod memory;
mod topic;

use anyhow::Result;
use clap::Parser;
use semel_bench::report::{line, middle, range};

use crate::{inbox::Database, topic::BenchTopic};

/// The same allocator as in the command `semel`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What to measure.
#[derive(Parser)]
struct KafkaBench {
    /// The Kafka server; a topic is created there, and deleted at the end.
    #[arg(long)]
    url: String,
    /// The PostgreSQL server. Tables are made in a schema of their own, and dropped at the end.
    #[arg(long)]
    postgres_url: String,
    /// Messages of each run.
    #[arg(long, default_value_t = 200_000)]
    messages: u64,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 4)]
    partitions: i32,
    /// Runs of each kind, taken in turns.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Handlers that run at the same time, with the memory store.
    #[arg(long, default_value_t = 64)]
    concurrency: usize,
    /// Events of a transaction.
    #[arg(long, default_value_t = 500)]
    batch: usize,
    /// Transactions that run at the same time, on both sides.
    #[arg(long, default_value_t = 1)]
    transactions: usize,
}

fn main() -> Result<()> {
    // Metrics are on, as they are in a service.
    metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async { run(&KafkaBench::parse()).await })
}

async fn run(options: &KafkaBench) -> Result<()> {
    println!(
        "{} messages a run, 300-byte CloudEvents in {} partitions, metrics on\n",
        options.messages, options.partitions
    );
    let topic = BenchTopic::create(options).await?;
    let database = Database::create(options).await?;
    let measured = measure(options, &topic, &database).await;
    topic.delete().await?;
    database.remove().await?;
    measured?.report(options);
    Ok(())
}

async fn measure(
    options: &KafkaBench,
    topic: &BenchTopic,
    database: &Database,
) -> Result<KafkaRates> {
    topic.publish(options.messages)?;
    let mut rates = KafkaRates::default();
    for _ in 0..options.repeats {
        rates.bare.push(bare::rate(topic, options.messages).await?);
        let [first, duplicates] = memory::rates(topic, options).await?;
        rates.first.push(first);
        rates.duplicates.push(duplicates);
        rates.bare_claims.push(database.bare_claims(options).await?);
        rates.claims.push(database.claims(topic, options).await?);
        rates.effects.push(database.effects(topic, options).await?);
        rates.in_inbox.push(database.duplicates(topic, options).await?);
    }
    Ok(rates)
}

/// Messages or rows per second, of each run.
#[derive(Default)]
struct KafkaRates {
    bare: Vec<f64>,
    first: Vec<f64>,
    duplicates: Vec<f64>,
    bare_claims: Vec<f64>,
    claims: Vec<f64>,
    effects: Vec<f64>,
    in_inbox: Vec<f64>,
}

impl KafkaRates {
    fn report(&self, options: &KafkaBench) {
        let rate = |rates: &[f64]| range(rates.iter().copied(), 0);
        let beside = |what: &str, rates: &[f64], limit: &[f64], goal: Option<f64>| {
            let shares = || rates.iter().zip(limit).map(|(rate, limit)| 100.0 * rate / limit);
            let share = middle(shares());
            let figure = format!("{}/s, {} %", rate(rates), range(shares(), 0));
            let text = goal.map_or(String::new(), |goal| format!("≥ {goal:.0} %"));
            line(what, &figure, &text, goal.map(|goal| share >= goal));
        };
        line("bare consumer", &format!("{}/s", rate(&self.bare)), "", None);
        beside("first seen, memory store", &self.first, &self.bare, None);
        beside("duplicates, memory store", &self.duplicates, &self.bare, None);
        let bare = format!("bare claims, {} rows a batch", options.batch);
        line(&bare, &format!("{}/s", rate(&self.bare_claims)), "", None);
        beside("inbox, handler without effect", &self.claims, &self.bare_claims, Some(35.0));
        beside("inbox, one insert per event", &self.effects, &self.bare_claims, None);
        beside("inbox, duplicates", &self.in_inbox, &self.bare_claims, None);
    }
}
