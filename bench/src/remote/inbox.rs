//! The inbox compared with the same business transaction without it, one event at a time and 500 at once; and a dropped
//! partition compared with the delete that it replaces.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use deadpool_postgres::{Manager, Pool};
use futures_util::future::try_join_all;
use semel_bench::report::{line, spread};
use semel_inbox::{Done, InboxEvent, InboxPool, InboxVariant, PgInbox};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio_postgres::NoTls;

/// The options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct InboxBenchOptions {
    /// The server. Tables are made in a schema of their own, and dropped at the end.
    #[arg(long)]
    url: String,
    /// Runs of each side, taken in turns.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Milliseconds of each run.
    #[arg(long, default_value_t = 2000)]
    millis: u64,
    /// Rows of the partition that is dropped.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
}

/// Connections, and callers, of the sides that take one event at a time.
const SINGLES: usize = 16;
const BATCH: usize = 500;
const TABLES: &str = "\
DROP SCHEMA IF EXISTS inbox_bench CASCADE; CREATE SCHEMA inbox_bench;
CREATE TABLE inbox_bench.profiles (id text PRIMARY KEY, name text NOT NULL);
CREATE TABLE inbox_bench.totals (id int PRIMARY KEY, count bigint NOT NULL);
INSERT INTO inbox_bench.totals SELECT n, 0 FROM generate_series(0, 9999) AS n";
const EMPTY: [&str; 3] = [
    "TRUNCATE inbox_bench.profiles, inbox_bench.processed_events, inbox_bench.bare",
    "VACUUM inbox_bench.totals",
    "CHECKPOINT",
];
const PROFILE: &str = "INSERT INTO inbox_bench.profiles VALUES ($1, 'somebody')";
const TOTAL: &str = "UPDATE inbox_bench.totals SET count = count + 1 WHERE id = $1";
const PROFILES: &str =
    "INSERT INTO inbox_bench.profiles SELECT id, 'somebody' FROM unnest($1::text[]) AS id";
const ROW: &str = "INSERT INTO inbox_bench.bare (consumer, event_id, event_type) \
    VALUES ('bench', $1, 'UserRegistered') ON CONFLICT DO NOTHING";
const BARE: &str = "INSERT INTO inbox_bench.bare (consumer, event_id, event_type) \
    SELECT 'bench', id, 'UserRegistered' FROM unnest($1::text[]) AS id ON CONFLICT DO NOTHING";

pub(crate) async fn run(options: &InboxBenchOptions) -> Result<()> {
    let pool = options.deadpool()?;
    let client = pool.get().await?;
    client.batch_execute(TABLES).await?;
    let inbox = options.inbox(pool.clone()).await?;
    client
        .batch_execute(
            "CREATE TABLE inbox_bench.bare (LIKE inbox_bench.processed_events INCLUDING ALL)",
        )
        .await?;
    options.singles(&pool, &inbox).await?;
    options.partitions(&pool).await?;
    client.batch_execute("DROP SCHEMA inbox_bench CASCADE").await?;
    Ok(())
}

impl InboxBenchOptions {
    fn deadpool(&self) -> Result<Pool> {
        let manager = Manager::new(self.url.parse()?, NoTls);
        Ok(Pool::builder(manager).max_size(SINGLES + 1).build()?)
    }

    async fn sqlx(&self) -> Result<PgPool> {
        let size = u32::try_from(SINGLES)?;
        Ok(PgPoolOptions::new().max_connections(size).connect(&self.url).await?)
    }

    async fn inbox<P: InboxPool>(&self, pool: P) -> Result<PgInbox<P>> {
        let inbox = PgInbox::builder(pool).schema("inbox_bench").consumer("bench").install(true);
        Ok(inbox.build().await?)
    }

    async fn singles(&self, pool: &Pool, inbox: &PgInbox<Pool>) -> Result<()> {
        let sqlx = self.sqlx().await?;
        let over_sqlx = self.inbox(sqlx.clone()).await?;
        let mut runs: [Vec<f64>; 7] = Default::default();
        for _ in 0..self.repeats {
            for (at, run) in runs.iter_mut().enumerate() {
                for statement in EMPTY {
                    pool.get().await?.batch_execute(statement).await?;
                }
                run.push(match at {
                    0 => self.rate(SINGLES, 1, async || bare(pool).await).await?,
                    1 => self.rate(SINGLES, 1, async || one(inbox).await).await?,
                    2 => self.rate(SINGLES, 1, async || bare_sqlx(&sqlx).await).await?,
                    3 => self.rate(SINGLES, 1, async || one_sqlx(&over_sqlx).await).await?,
                    4 => self.rate(1, BATCH, async || bare_batch(pool).await).await?,
                    5 => self.rate(SINGLES, 1, async || by_hand(pool).await).await?,
                    _ => self.rate(1, BATCH, async || batch(inbox).await).await?,
                });
            }
        }
        report(&runs);
        Ok(())
    }

    /// Events per second with this many callers.
    async fn rate(
        &self,
        callers: usize,
        events: usize,
        call: impl AsyncFn() -> Result<()>,
    ) -> Result<f64> {
        let (time, started) = (Duration::from_millis(self.millis), Instant::now());
        let caller = || async {
            let mut calls = 0;
            while started.elapsed() < time {
                call().await?;
                calls += 1;
            }
            anyhow::Ok(calls)
        };
        let calls: Vec<usize> = try_join_all((0..callers).map(|_| caller())).await?;
        Ok((calls.iter().sum::<usize>() * events) as f64 / started.elapsed().as_secs_f64())
    }

    async fn partitions(&self, pool: &Pool) -> Result<()> {
        let client = pool.get().await?;
        let day = Duration::from_secs(24 * 3600);
        let builder = |retention| {
            let builder = PgInbox::builder(pool.clone()).schema("inbox_bench").table("parted");
            builder.variant(InboxVariant::Partitioned).retention(retention).install(true)
        };
        let long = builder(20 * day).build().await?;
        let old = client.query_one("SELECT (current_date - 15)::text", &[]).await?;
        // The inbox creates the partition for it.
        let old = InboxEvent::new("first", "t")?.occurred_on(old.get::<_, &str>(0))?;
        long.process(&old, async |_, _| Ok(())).await?;
        let rows = self.rows;
        let fill = |table: &str| {
            format!(
                "INSERT INTO inbox_bench.{table} (consumer, event_id, event_type, occurred_on, processed_at)
                 SELECT 'bench', 'event-' || n, 't', current_date - 15, now() - interval '15 days'
                 FROM generate_series(1, {rows}) AS n"
            )
        };
        client.batch_execute("TRUNCATE inbox_bench.processed_events").await?;
        client.batch_execute(&fill("parted")).await?;
        client.batch_execute(&fill("processed_events")).await?;
        let short = builder(10 * day).build().await?;
        let started = Instant::now();
        let report = short.maintain().await?;
        let dropped = started.elapsed();
        ensure!(report.dropped > 0, "no partition was dropped");
        let plain = PgInbox::builder(pool.clone()).schema("inbox_bench").consumer("bench");
        let plain = plain.retention(10 * day).build().await?;
        let started = Instant::now();
        let purged = plain.maintain().await?.purged;
        let deleted = started.elapsed();
        ensure!(purged == rows, "{purged} of {rows} were purged");
        let text = format!(
            "{:.0} ms, with {} empty ones beside it",
            dropped.as_secs_f64() * 1e3,
            report.dropped - 1
        );
        line(&format!("a partition of {rows} dropped"), &text, "", None);
        line(
            "the same deleted in batches",
            &format!("{:.0} ms", deleted.as_secs_f64() * 1e3),
            "",
            None,
        );
        Ok(())
    }
}

fn id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn account() -> i32 {
    rand::random_range(0..10_000)
}

async fn bare(pool: &Pool) -> Result<()> {
    let mut client = pool.get().await?;
    let tx = client.transaction().await?;
    let (profile, total) = (tx.prepare_cached(PROFILE).await?, tx.prepare_cached(TOTAL).await?);
    tx.execute(&profile, &[&id()]).await?;
    tx.execute(&total, &[&account()]).await?;
    Ok(tx.commit().await?)
}

/// The least that an inbox can do: one more row, and no reply to duplicates.
async fn by_hand(pool: &Pool) -> Result<()> {
    let mut client = pool.get().await?;
    let tx = client.transaction().await?;
    let (record, profile, total) = (
        tx.prepare_cached(ROW).await?,
        tx.prepare_cached(PROFILE).await?,
        tx.prepare_cached(TOTAL).await?,
    );
    let id = id();
    tx.execute(&record, &[&id]).await?;
    tx.execute(&profile, &[&id]).await?;
    tx.execute(&total, &[&account()]).await?;
    Ok(tx.commit().await?)
}

async fn one(inbox: &PgInbox<Pool>) -> Result<()> {
    let event = InboxEvent::new(id(), "UserRegistered")?;
    let done = inbox
        .process(&event, async |tx, _| {
            let (profile, total) =
                (tx.prepare_cached(PROFILE).await?, tx.prepare_cached(TOTAL).await?);
            tx.execute(&profile, &[&event.id()]).await?;
            tx.execute(&total, &[&account()]).await?;
            Ok(())
        })
        .await?;
    ensure!(done == Done::Now(()), "a new event was {done:?}");
    Ok(())
}

async fn bare_sqlx(pool: &PgPool) -> Result<()> {
    let mut tx = pool.begin().await?;
    sqlx::query(PROFILE).bind(id()).execute(&mut *tx).await?;
    sqlx::query(TOTAL).bind(account()).execute(&mut *tx).await?;
    Ok(tx.commit().await?)
}

async fn one_sqlx(inbox: &PgInbox<PgPool>) -> Result<()> {
    let event = InboxEvent::new(id(), "UserRegistered")?;
    let done = inbox
        .process(&event, async |tx, _| {
            sqlx::query(PROFILE).bind(event.id()).execute(&mut **tx).await?;
            sqlx::query(TOTAL).bind(account()).execute(&mut **tx).await?;
            Ok(())
        })
        .await?;
    ensure!(done == Done::Now(()), "a new event was {done:?}");
    Ok(())
}

async fn bare_batch(pool: &Pool) -> Result<()> {
    let mut ids: Vec<String> = (0..BATCH).map(|_| id()).collect();
    ids.sort_unstable();
    let mut client = pool.get().await?;
    let tx = client.transaction().await?;
    let (records, profiles) = (tx.prepare_cached(BARE).await?, tx.prepare_cached(PROFILES).await?);
    tx.execute(&records, &[&ids]).await?;
    tx.execute(&profiles, &[&ids]).await?;
    Ok(tx.commit().await?)
}

async fn batch(inbox: &PgInbox<Pool>) -> Result<()> {
    let events: Result<Vec<_>, _> =
        (0..BATCH).map(|_| InboxEvent::new(id(), "UserRegistered")).collect();
    let done = inbox
        .process_batch(&events?, async |tx, new| {
            let mut ids: Vec<&str> = new.iter().map(|event| event.id()).collect();
            ids.sort_unstable();
            let profiles = tx.prepare_cached(PROFILES).await?;
            tx.execute(&profiles, &[&ids]).await?;
            Ok(())
        })
        .await?;
    ensure!(
        done.iter().all(|done| matches!(done, Ok(Done::Now(())))),
        "a new event was a duplicate"
    );
    Ok(())
}

fn report([bare, one, bare_sqlx, one_sqlx, bare_batch, by_hand, batch]: &[Vec<f64>; 7]) {
    let rate = |run: &[f64]| {
        let (middle, low, high) = spread(&mut run.to_vec());
        format!("{middle:.0}/s ({low:.0}–{high:.0})")
    };
    let share = |one: &[f64], other: &[f64]| {
        let mut shares: Vec<_> = one.iter().zip(other).map(|(a, b)| 100.0 * a / b).collect();
        spread(&mut shares)
    };
    let beside = |what: &str, one: &[f64], other: &[f64], least: f64| {
        let (middle, low, high) = share(one, other);
        let text = format!("{}, {middle:.0} % ({low:.0}–{high:.0})", rate(one));
        line(what, &text, &format!("≥ {least:.0} %"), Some(middle >= least));
    };
    line("bare, tokio-postgres, 16 callers", &rate(bare), "", None);
    let (middle, low, high) = share(by_hand, bare);
    let text = format!("{}, {middle:.0} % ({low:.0}–{high:.0})", rate(by_hand));
    line("a plain insert of the same row", &text, "", None);
    beside("inbox, tokio-postgres", one, bare, 75.0);
    line("bare, sqlx, 16 callers", &rate(bare_sqlx), "", None);
    beside("inbox, sqlx", one_sqlx, bare_sqlx, 75.0);
    line("bare batch of 500, 1 connection", &rate(bare_batch), "", None);
    beside("inbox batch of 500", batch, bare_batch, 60.0);
    let (middle, ..) = share(batch, one);
    line(
        "batch beside one at a time",
        &format!("{:.1}x", middle / 100.0),
        "≥ 12x",
        Some(middle >= 1200.0),
    );
}
