//! NATS JetStream beside a bare consumer that acknowledges every message and waits for the confirmation.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use async_nats::{
    Client, HeaderMap,
    jetstream::{
        self, AckKind,
        consumer::{AckPolicy, pull},
    },
};
use futures_util::{StreamExt, TryStreamExt};
use semel_bench::{
    events::{body, counting, headers},
    report::{line, middle, range},
};
use semel_consumer::Consumer;
use semel_core::{Cached, MemoryStore, Store};
use semel_source_nats::NatsSource;
use semel_store_nats::NatsStore;

use crate::ConsumerBench;

const STREAM: &str = "BENCH_EVENTS";
const SUBJECT: &str = "bench.events";
const BUCKET: &str = "bench_ids";
/// Ids in the cache in front of the bucket.
const CACHED: usize = 1_000_000;
const PUBLISHED_AT_ONCE: usize = 256;

pub(crate) async fn run(options: &ConsumerBench, url: &str) -> Result<()> {
    println!(
        "\nNATS JetStream, {} messages a run, {} handlers\n",
        options.nats_messages, options.concurrency
    );
    let bench = NatsBench::open(options, url).await?;
    let mut rates = Rates::default();
    for round in 0..options.repeats {
        bench.publish(round as u64).await?;
        rates.bare.push(bench.bare().await?);
        let memory = Arc::new(MemoryStore::new());
        rates.memory.push(bench.semel(memory, options.nats_messages).await?);
        let two_layers = Arc::new(Cached::new(bench.bucket().await?, CACHED));
        rates.bucket.push(bench.semel(two_layers.clone(), options.nats_messages).await?);
        // The first copy of an event is found in the bucket, and cached.
        rates.in_bucket.push(bench.semel(two_layers.clone(), 0).await?);
        rates.in_cache.push(bench.semel(two_layers, 0).await?);
    }
    rates.report();
    Ok(())
}

#[derive(Default)]
struct Rates {
    bare: Vec<f64>,
    memory: Vec<f64>,
    bucket: Vec<f64>,
    in_bucket: Vec<f64>,
    in_cache: Vec<f64>,
}

impl Rates {
    fn report(self) {
        let bare = self.bare.clone();
        let show = |what: &str, rates: Vec<f64>, goal: Option<f64>| {
            let share = middle(rates.iter().zip(&bare).map(|(rate, bare)| 100.0 * rate / bare));
            let figure =
                format!("{} messages/s, {share:.0} % of bare", range(rates.into_iter(), 0));
            let text = goal.map_or(String::new(), |goal| format!("≥ {goal:.0} %"));
            line(what, &figure, &text, goal.map(|goal| share >= goal));
        };
        show("bare consumer, double ack", self.bare, None);
        show("duplicates, found in the cache", self.in_cache, Some(80.0));
        show("duplicates, found in NATS KV", self.in_bucket, None);
        show("first seen, memory store", self.memory, Some(50.0));
        show("first seen, cache and NATS KV", self.bucket, None);
    }
}

struct NatsBench<'a> {
    options: &'a ConsumerBench,
    url: &'a str,
    client: Client,
}

impl<'a> NatsBench<'a> {
    async fn open(options: &'a ConsumerBench, url: &'a str) -> Result<Self> {
        let client = async_nats::connect(url).await.context("cannot connect to the NATS server")?;
        Ok(Self { options, url, client })
    }

    fn context(&self) -> jetstream::Context {
        jetstream::new(self.client.clone())
    }

    /// A new stream with this round's messages.
    async fn publish(&self, round: u64) -> Result<()> {
        let context = self.context();
        let _ = context.delete_stream(STREAM).await;
        let config = jetstream::stream::Config {
            name: STREAM.to_owned(),
            subjects: vec![SUBJECT.to_owned()],
            max_age: Duration::from_secs(3600),
            ..Default::default()
        };
        context.create_stream(config).await?;
        let first = round * self.options.nats_messages;
        futures_util::stream::iter(first..first + self.options.nats_messages)
            .map(|id| {
                let context = context.clone();
                async move {
                    let mut map = HeaderMap::new();
                    headers(id).iter().for_each(|(name, value)| map.insert(*name, value.as_str()));
                    let ack = context.publish_with_headers(SUBJECT, map, body(id).into()).await?;
                    ack.await.map(drop).map_err(anyhow::Error::from)
                }
            })
            .buffer_unordered(PUBLISHED_AT_ONCE)
            .try_collect::<()>()
            .await
    }

    /// A store in an empty bucket.
    async fn bucket(&self) -> Result<NatsStore> {
        let _ = self.context().delete_stream(format!("KV_{BUCKET}")).await;
        Ok(NatsStore::connect(&format!("{}/{BUCKET}", self.url)).await?)
    }

    /// A new consumer of all messages.
    async fn consumer(&self, name: &str) -> Result<jetstream::consumer::PullConsumer> {
        let stream = self.context().get_stream(STREAM).await?;
        let _ = stream.delete_consumer(name).await;
        let config = pull::Config {
            durable_name: Some(name.to_owned()),
            ack_policy: AckPolicy::Explicit,
            max_ack_pending: 10_000,
            ..Default::default()
        };
        Ok(stream.create_consumer(config).await?)
    }

    /// Messages per second of a consumer that only acknowledges, as many at a time as semel has handlers.
    async fn bare(&self) -> Result<f64> {
        let consumer = self.consumer("bare").await?;
        let started = Instant::now();
        let total = usize::try_from(self.options.nats_messages)?;
        let batch = self.options.concurrency * Consumer::IN_FLIGHT_PER_HANDLER;
        let messages = consumer.stream().max_messages_per_batch(batch).messages().await?;
        let acked = messages.take(total).map(async |message| {
            let message = message?;
            message.double_ack_with(AckKind::Ack).await.map_err(|error| anyhow::anyhow!("{error}"))
        });
        let acked: Vec<()> = acked.buffer_unordered(batch).try_collect().await?;
        ensure!(acked.len() == total, "{} of {total} messages were acknowledged", acked.len());
        Ok(total as f64 / started.elapsed().as_secs_f64())
    }

    /// Messages per second through the pipeline. `expected` of them are new to the store.
    async fn semel(&self, store: impl Store, expected: u64) -> Result<f64> {
        self.consumer("semel").await?;
        let source = NatsSource::connect(&format!("{}/{STREAM}/semel", self.url)).await?;
        let handled = Arc::new(AtomicU64::new(0));
        let consumer = Consumer::builder(source)
            .name("bench")
            .store(store)?
            .drop_dead_letters()
            .concurrency(self.options.concurrency)
            .handler(counting(&handled))
            .build()?;
        let control = consumer.control();
        let started = Instant::now();
        let running = tokio::spawn(consumer.run());
        let ended = self.until_acknowledged("semel").await?;
        control.stop();
        running.await??;
        let handled = handled.load(Relaxed);
        ensure!(handled == expected, "{handled} of {expected} events were handled");
        Ok(self.options.nats_messages as f64 / (ended - started).as_secs_f64())
    }

    /// Waits until every message is acknowledged.
    async fn until_acknowledged(&self, name: &str) -> Result<Instant> {
        let stream = self.context().get_stream(STREAM).await?;
        let mut consumer = stream
            .get_consumer::<pull::Config>(name)
            .await
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        loop {
            let info = consumer.info().await?;
            if info.ack_floor.stream_sequence >= self.options.nats_messages {
                return Ok(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
