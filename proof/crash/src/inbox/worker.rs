//! A worker: it takes events from a source that delivers many of them twice, and handles each in a transaction.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use deadpool_postgres::{Manager, Pool};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use semel_core::WorkError;
use semel_inbox::{Done, InboxError, InboxEvent, InboxPool, InboxTx, MaintenanceReport, PgInbox};
use sqlx::postgres::PgPoolOptions;
use tokio::time::sleep;
use tokio_postgres::NoTls;

use super::tables::{flat, id, partitioned};
use crate::process::die_with_parent;

/// The interval of maintenance. A worker lives for a few of these.
const MAINTENANCE: Duration = Duration::from_millis(100);

/// The arguments of a worker process.
#[derive(Args, Clone, Debug)]
pub struct InboxJob {
    /// The server.
    #[arg(long)]
    url: String,
    /// The days of events.
    #[arg(long, value_delimiter = ',')]
    days: Vec<String>,
    /// `sqlx`, `deadpool`, `each` or `batch`.
    #[arg(long)]
    mode: String,
    /// The number of events.
    #[arg(long)]
    events: u32,
    /// The seed of its random numbers.
    #[arg(long)]
    seed: u64,
    /// Deliver every event until it is done, then exit. Otherwise deliver random events until killed.
    #[arg(long)]
    all: bool,
}

/// Works until it is killed, or until all events are done.
///
/// # Errors
///
/// When an event is not done after many deliveries.
pub fn work(job: InboxJob) -> Result<()> {
    die_with_parent()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match &*job.mode {
            "sqlx" | "batch" => {
                let pool = PgPoolOptions::new().max_connections(4).connect_lazy(&job.url)?;
                run(&job, pool).await
            }
            "deadpool" | "each" => {
                let manager = Manager::new(job.url.parse()?, NoTls);
                run(&job, Pool::builder(manager).max_size(4).build()?).await
            }
            other => bail!("there is no mode `{other}`"),
        }
    })
}

/// A partitioned inbox and one without partitions. Every event belongs to one of them.
struct Inboxes<P> {
    partitioned: PgInbox<P>,
    flat: PgInbox<P>,
    days: Vec<String>,
}

impl<P: InboxPool + Clone + 'static> Inboxes<P> {
    async fn of(job: &InboxJob, pool: &P) -> Result<Self> {
        let (partitioned, flat) = (partitioned(pool).build().await?, flat(pool).build().await?);
        Ok(Self { partitioned, flat, days: job.days.clone() })
    }

    /// Events with close numbers are mostly in the same inbox.
    const fn is_flat(number: u32) -> bool {
        (number / 30).is_multiple_of(2)
    }

    fn inbox(&self, is_flat: bool) -> &PgInbox<P> {
        if is_flat { &self.flat } else { &self.partitioned }
    }

    fn event(&self, number: u32) -> Result<InboxEvent> {
        let day = &self.days[number as usize % self.days.len()];
        Ok(InboxEvent::new(id(number), "Tested")?.occurred_on(day.as_str())?)
    }

    /// Runs maintenance until nothing is left to do. A single pass may fail, as it may in a service.
    async fn maintain(&self) -> Result<()> {
        for inbox in [&self.partitioned, &self.flat] {
            for turn in 0.. {
                match inbox.maintain().await {
                    Ok(done) if done == MaintenanceReport::default() => break,
                    Err(error) if turn > 200 => return Err(error.into()),
                    Ok(_) | Err(_) => sleep(Duration::from_millis(10)).await,
                }
            }
        }
        Ok(())
    }
}

async fn run<P: InboxPool + Clone + 'static>(job: &InboxJob, pool: P) -> Result<()> {
    let inboxes = Inboxes::of(job, &pool).await?;
    let maintenance =
        [inboxes.partitioned.maintain_every(MAINTENANCE), inboxes.flat.maintain_every(MAINTENANCE)];
    if job.all {
        for number in 0..job.events {
            deliver_until_done(&inboxes, number).await?;
        }
        // While the background maintenance runs, a pass of our own would do nothing.
        drop(maintenance);
        return inboxes.maintain().await;
    }
    let mut rng = StdRng::seed_from_u64(job.seed);
    let mut numbers = move || -> Vec<u32> {
        // Close numbers, so that workers compete for events. Three in ten are delivered twice.
        let first = rng.random_range(0..job.events);
        let mut numbers: Vec<u32> = (0..20).map(|at| (first + at) % job.events).collect();
        let copies: Vec<u32> = numbers.iter().copied().filter(|_| rng.random_bool(0.3)).collect();
        numbers.extend(copies);
        numbers
    };
    loop {
        let numbers = numbers();
        if matches!(&*job.mode, "each" | "batch") {
            for is_flat in [true, false] {
                let numbers = numbers.iter().copied();
                let numbers: Vec<u32> =
                    numbers.filter(|it| Inboxes::<P>::is_flat(*it) == is_flat).collect();
                deliver_together(&inboxes, job, is_flat, &numbers).await?;
            }
        } else {
            let calls = numbers.into_iter().map(|number| deliver_once(&inboxes, number));
            futures_util::future::join_all(calls).await;
        }
    }
}

/// Writes the effect. Some events fail, retry or deadlock afterwards.
async fn handle(tx: &mut impl InboxTx, number: u32) -> Result<(), WorkError> {
    tx.run(&format!("INSERT INTO effects VALUES ('{}')", id(number))).await?;
    sleep(Duration::from_millis(u64::from(number % 5))).await;
    match number % 30 {
        7 => Err(WorkError::failure("poison", "it never works")),
        11 | 12 if rand::random_bool(0.5) => Err(WorkError::retry("not now")),
        13 if rand::random_bool(0.3) => {
            tx.run("DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$").await?;
            Ok(())
        }
        _ => Ok(()),
    }
}

async fn deliver_once<P>(inboxes: &Inboxes<P>, number: u32) -> Option<()>
where
    P: InboxPool + Clone + 'static,
{
    let (inbox, event) =
        (inboxes.inbox(Inboxes::<P>::is_flat(number)), inboxes.event(number).ok()?);
    let done = inbox.process(&event, async |tx, _| handle(tx, number).await).await;
    acknowledge(number, &done).then_some(())
}

/// Prints the number of the event if it may be acknowledged.
fn acknowledge(number: u32, done: &Result<Done<()>, InboxError>) -> bool {
    let is_done =
        matches!(done, Ok(Done::Now(()) | Done::Duplicate(_)) | Err(InboxError::Failed { .. }));
    // One write per line: a kill leaves the whole line or nothing.
    is_done && io::stdout().lock().write_all(format!("{number}\n").as_bytes()).is_ok()
}

async fn deliver_together<P>(
    inboxes: &Inboxes<P>,
    job: &InboxJob,
    is_flat: bool,
    numbers: &[u32],
) -> Result<()>
where
    P: InboxPool + Clone + 'static,
{
    let inbox = inboxes.inbox(is_flat);
    let events: Vec<InboxEvent> =
        numbers.iter().map(|number| inboxes.event(*number)).collect::<Result<_>>()?;
    let number =
        |event: &InboxEvent| numbers[events.iter().position(|it| it == event).unwrap_or(0)];
    let done = if job.mode == "each" {
        inbox.process_each(&events, async |tx, event, _| handle(tx, number(event)).await).await
    } else {
        inbox
            .process_batch(&events, async |tx, new| {
                let rows: Vec<String> =
                    new.iter().map(|event| format!("('{}')", event.id())).collect();
                // A batch that is handled as one transaction cannot contain an event that always fails.
                if new.iter().any(|event| number(event) % 30 == 7) {
                    return Err(WorkError::retry("a poison event among them"));
                }
                Ok(tx.run(&format!("INSERT INTO effects VALUES {}", rows.join(","))).await?)
            })
            .await
    };
    for (number, done) in numbers.iter().zip(done.into_iter().flatten()) {
        acknowledge(*number, &done);
    }
    Ok(())
}

async fn deliver_until_done<P>(inboxes: &Inboxes<P>, number: u32) -> Result<()>
where
    P: InboxPool + Clone + 'static,
{
    for _ in 0..200 {
        if deliver_once(inboxes, number).await.is_some() {
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err(anyhow::anyhow!("event {number} is never done")).context("deliver all events")
}
