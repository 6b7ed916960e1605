//! The NATS store compared with plain publishes to a stream of the same kind, each acknowledged, and as many in flight.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use async_nats::{Client, HeaderMap, Request};
use semel_bench::{
    load::spread_out,
    report::{line, spread},
};
use semel_core::{Cached, KeyHash, MemoryStore, Store, background, codec::HEAD_BYTES};
use semel_store_nats::NatsStore;
use tokio::task::JoinSet;

use crate::{
    callers::{RemoteLoad, Shape, claim, cycle, replayed},
    waking,
};

/// The options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct NatsBenchOptions {
    /// The server; a bucket `bench` and a stream `plain` are made there, and emptied before each run.
    #[arg(long)]
    url: String,
    /// Runs of each side, taken in turns. Each run of the store is compared with the two runs around it.
    #[arg(long, default_value_t = 9)]
    repeats: usize,
    /// Milliseconds of each run.
    #[arg(long, default_value_t = 500)]
    millis: u64,
    /// Only run this many callers on the store, for a profile.
    #[arg(long, hide = true)]
    only: Option<usize>,
    /// With `--callers`: publish instead, with or without the headers of a claim.
    #[arg(long, hide = true)]
    headed: Option<bool>,
    /// Calls of each run of the cache.
    #[arg(long, default_value_t = 300_000)]
    calls: u64,
}

/// Name, callers, operation, and the goal as a number and as text.
type NatsRow = (&'static str, usize, Shape, Option<(f64, &'static str)>);

const ROWS: [NatsRow; 6] = [
    ("claims, 64 callers", 64, Shape::Claims, None),
    ("claims, 2048 callers", 2048, Shape::Claims, Some((85.0, "≥ 85 %"))),
    ("cycles, 64 callers", 64, Shape::Cycles, None),
    ("cycles, 2048 callers", 2048, Shape::Cycles, None),
    ("replays, 64 callers", 64, Shape::Replays, None),
    ("replays, 2048 callers", 2048, Shape::Replays, None),
];

/// Completed keys for the cache.
const KEYS: u64 = 10_000;

pub(crate) async fn run(options: &NatsBenchOptions) -> Result<()> {
    let store = options.store().await?;
    let plain = PlainPublisher::open(options.url.clone()).await?;
    if let Some(callers) = options.only {
        let time = Duration::from_millis(options.millis);
        plain.empty("KV_bench", Some("$KV.bench.semel.k.>")).await?;
        let rate = match options.headed {
            Some(headed) => plain.rate(callers, time, headed).await?,
            None => RemoteLoad { callers, time, shape: Shape::Claims }.run(&store).await?,
        };
        println!("{rate:.0} calls/s");
        return Ok(());
    }
    for row in ROWS {
        options.beside(&plain, row, &store).await?;
    }
    // What headers and a consumer of every write cost the server, without the store.
    let row = ("publishes with a claim's headers, 2048", 2048, Shape::Claims, None);
    options.beside(&plain, row, &Headed(plain.clone())).await?;
    let row = ("claims while a cache listens, 2048", 2048, Shape::Claims, None);
    let listening = Cached::new(store.clone(), 100_000);
    options.beside(&plain, row, &store).await?;
    drop(listening);
    options.cache(&store).await?;
    let other = options.store().await?;
    waking::run(store, other).await
}

/// A side whose rate is measured.
trait NatsSide {
    async fn rate(&self, load: RemoteLoad) -> Result<f64>;
}

impl<S: Store + Clone> NatsSide for S {
    async fn rate(&self, load: RemoteLoad) -> Result<f64> {
        load.run(self).await
    }
}

/// Plain publishes with the headers of a claim.
struct Headed(PlainPublisher);

impl NatsSide for Headed {
    async fn rate(&self, RemoteLoad { callers, time, .. }: RemoteLoad) -> Result<f64> {
        self.0.rate(callers, time, true).await
    }
}

impl NatsBenchOptions {
    /// Measures one row: a side in turns with plain publishes.
    async fn beside(
        &self,
        plain: &PlainPublisher,
        (what, callers, shape, goal): NatsRow,
        side: &impl NatsSide,
    ) -> Result<()> {
        let (mut rates, mut ratios, mut limits) = (Vec::new(), Vec::new(), Vec::new());
        let time = Duration::from_millis(self.millis);
        let mut before = plain.rate(callers, time, false).await?;
        for _ in 0..self.repeats {
            plain.empty("KV_bench", Some("$KV.bench.semel.k.>")).await?;
            let rate = side.rate(RemoteLoad { callers, time, shape }).await?;
            let after = plain.rate(callers, time, false).await?;
            rates.push(rate);
            ratios.push(200.0 * rate / (before + after));
            limits.push(after);
            before = after;
        }
        let ((rate, ..), (ratio, low, high)) = (spread(&mut rates), spread(&mut ratios));
        let text = format!("{rate:.0}/s, {ratio:.0} % ({low:.0}–{high:.0})");
        line(what, &text, goal.map_or("", |goal| goal.1), goal.map(|goal| ratio >= goal.0));
        let (limit, low, high) = spread(&mut limits);
        line("  plain publishes", &format!("{limit:.0}/s ({low:.0}–{high:.0})"), "", None);
        Ok(())
    }

    async fn store(&self) -> Result<NatsStore> {
        Ok(NatsStore::connect(&format!("{}/bench", self.url)).await?)
    }

    /// Duplicates that the cache answers, compared with replays of the memory store.
    async fn cache(&self, store: &NatsStore) -> Result<()> {
        let (memory, cached) = (MemoryStore::new(), Cached::new(store.clone(), 100_000));
        for i in 0..KEYS {
            cycle(&memory, &claim(i)).await?;
            let _ = cycle(&cached, &claim(i)).await;
        }
        // Messages of the change feed about recent completions are still under way.
        tokio::time::sleep(Duration::from_secs(1)).await;
        for i in 0..KEYS {
            replayed(&cached, &claim(i)).await?;
        }
        let (mut ratios, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..self.repeats {
            let bare = self.replays(&memory).await?;
            let hits = self.replays(&cached).await?;
            rates.push(hits);
            ratios.push(100.0 * hits / bare);
        }
        let ((rate, ..), (ratio, low, high)) = (spread(&mut rates), spread(&mut ratios));
        let text = format!("{rate:.0}/s, {ratio:.0} % of memory ({low:.0}–{high:.0})");
        line("duplicates in the cache", &text, "≥ 80 %", Some(ratio >= 80.0));
        Ok(())
    }

    async fn replays(&self, store: &impl Store) -> Result<f64> {
        let started = Instant::now();
        for i in 0..self.calls {
            replayed(store, &claim(i % KEYS)).await?;
        }
        Ok(self.calls as f64 / started.elapsed().as_secs_f64())
    }
}

/// A plain client without a store. Its connection is on the same runtime as that of the store.
#[derive(Clone)]
struct PlainPublisher(Client);

impl PlainPublisher {
    async fn open(url: String) -> Result<Self> {
        let client =
            background::handle().spawn(async move { async_nats::connect(url).await }).await??;
        let plain = Self(client);
        let config = r#"{"name":"plain","subjects":["plain.*"],"storage":"file","discard":"new","max_msgs_per_subject":1,"allow_msg_ttl":true}"#;
        plain.ask("STREAM.CREATE.plain", config.to_owned()).await?;
        Ok(plain)
    }

    async fn ask(&self, api: &str, body: String) -> Result<()> {
        let reply = self.0.request(format!("$JS.API.{api}"), body.into()).await?;
        let text = String::from_utf8_lossy(&reply.payload);
        ensure!(!text.contains("\"error\""), "{api} was answered {text}");
        Ok(())
    }

    /// Empties the stream: a stream with more messages is slower, and all runs have to begin alike.
    async fn empty(&self, stream: &str, filter: Option<&str>) -> Result<()> {
        let body = filter.map_or_else(String::new, |it| format!(r#"{{"filter":"{it}"}}"#));
        self.ask(&format!("STREAM.PURGE.{stream}"), body).await
    }

    /// Publishes per second, with values and subjects as long as those of the store.
    async fn rate(&self, callers: usize, time: Duration, headed: bool) -> Result<f64> {
        self.empty("plain", None).await?;
        let next = Arc::new(AtomicU64::new(rand::random::<u64>() >> 1));
        let (started, mut publishers) = (Instant::now(), JoinSet::new());
        for _ in 0..callers {
            let (plain, next) = (self.clone(), next.clone());
            publishers.spawn(async move {
                let mut count = 0u64;
                while started.elapsed() < time {
                    let key = KeyHash::from_bytes(spread_out::<32>(next.fetch_add(1, Relaxed)));
                    plain.publish(&key, headed).await?;
                    count += 1;
                }
                anyhow::Ok(count)
            });
        }
        let mut count = 0;
        while let Some(published) = publishers.join_next().await {
            count += published??;
        }
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }

    async fn publish(&self, key: &KeyHash, headed: bool) -> Result<()> {
        let (front, back) = key.as_bytes().split_at(16);
        let number =
            |half: &[u8]| half.iter().fold(0u128, |all, byte| all << 8 | u128::from(*byte));
        let subject = format!("plain.{:032x}{:032x}", number(front), number(back));
        let mut request = Request::new().payload(vec![b'c'; HEAD_BYTES + 1].into());
        if headed {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Expected-Last-Subject-Sequence", "0");
            headers.insert("Nats-TTL", "86400s");
            request = request.headers(headers);
        }
        let reply = self.0.send_request(subject, request).await?;
        let is_stored = reply.payload.windows(5).any(|it| it == b"\"seq\"");
        is_stored.then_some(()).context("a publish was not acknowledged")
    }
}
