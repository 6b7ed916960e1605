//! A worker: takes events from a source that delivers many of them twice, and handles each in a transaction.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use deadpool_postgres::{Manager, Pool};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use semel_core::WorkError;
use semel_store_postgres::{Done, InboxError, InboxEvent, InboxPool, InboxTx, PgInbox, Upkeep};
use sqlx::postgres::PgPoolOptions;
use tokio::time::sleep;
use tokio_postgres::NoTls;

use super::tables::{flat, id, parted};
use crate::process::die_with_parent;

/// How often a worker looks after the tables; it lives for a few of these.
const UPKEEP: Duration = Duration::from_millis(100);

/// What a worker is told.
#[derive(Args, Clone, Debug)]
pub struct Job {
    /// The server.
    #[arg(long)]
    url: String,
    /// The days of events.
    #[arg(long, value_delimiter = ',')]
    days: Vec<String>,
    /// `sqlx`, `deadpool`, `each` or `batch`.
    #[arg(long)]
    way: String,
    /// How many events there are.
    #[arg(long)]
    events: u32,
    /// Where the dice start.
    #[arg(long)]
    seed: u64,
    /// Every event once and to its end, instead of some for ever.
    #[arg(long)]
    all: bool,
}

/// Works until it is killed, or until all events are done.
///
/// # Errors
///
/// When an event cannot be brought to its end.
pub fn work(job: Job) -> Result<()> {
    die_with_parent()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match &*job.way {
            "sqlx" | "batch" => {
                let pool = PgPoolOptions::new().max_connections(4).connect_lazy(&job.url)?;
                run(&job, pool).await
            }
            "deadpool" | "each" => {
                let manager = Manager::new(job.url.parse()?, NoTls);
                run(&job, Pool::builder(manager).max_size(4).build()?).await
            }
            other => bail!("`{other}` is no way to work"),
        }
    })
}

/// An inbox in partitions and one without. Every event belongs to one of them.
struct Inboxes<P> {
    parted: PgInbox<P>,
    flat: PgInbox<P>,
    days: Vec<String>,
}

impl<P: InboxPool + Clone + 'static> Inboxes<P> {
    async fn of(job: &Job, pool: &P) -> Result<Self> {
        let (parted, flat) = (parted(pool).build().await?, flat(pool).build().await?);
        Ok(Self { parted, flat, days: job.days.clone() })
    }

    /// Neighbours are mostly in the same.
    const fn is_flat(number: u32) -> bool {
        (number / 30).is_multiple_of(2)
    }

    fn inbox(&self, is_flat: bool) -> &PgInbox<P> {
        if is_flat { &self.flat } else { &self.parted }
    }

    fn event(&self, number: u32) -> Result<InboxEvent> {
        let day = &self.days[number as usize % self.days.len()];
        Ok(InboxEvent::new(id(number), "Stormed")?.occurred_on(day.as_str())?)
    }

    /// Forgets what is too old, until nothing is. A turn may fail, as it may in a service.
    async fn tidy(&self) -> Result<()> {
        for inbox in [&self.parted, &self.flat] {
            for turn in 0.. {
                match inbox.upkeep().await {
                    Ok(done) if done == Upkeep::default() => break,
                    Err(error) if turn > 200 => return Err(error.into()),
                    Ok(_) | Err(_) => sleep(Duration::from_millis(10)).await,
                }
            }
        }
        Ok(())
    }
}

async fn run<P: InboxPool + Clone + 'static>(job: &Job, pool: P) -> Result<()> {
    let inboxes = Inboxes::of(job, &pool).await?;
    let upkeep = [inboxes.parted.keep_up(UPKEEP), inboxes.flat.keep_up(UPKEEP)];
    if job.all {
        for number in 0..job.events {
            to_its_end(&inboxes, number).await?;
        }
        // One that is in the middle of its turn would have this one give way.
        drop(upkeep);
        return inboxes.tidy().await;
    }
    let mut rng = StdRng::seed_from_u64(job.seed);
    let mut numbers = move || -> Vec<u32> {
        // Near each other, so that workers meet; three in ten come twice.
        let first = rng.random_range(0..job.events);
        let mut numbers: Vec<u32> = (0..20).map(|at| (first + at) % job.events).collect();
        let copies: Vec<u32> = numbers.iter().copied().filter(|_| rng.random_bool(0.3)).collect();
        numbers.extend(copies);
        numbers
    };
    loop {
        let numbers = numbers();
        if matches!(&*job.way, "each" | "batch") {
            for is_flat in [true, false] {
                let numbers = numbers.iter().copied();
                let numbers: Vec<u32> =
                    numbers.filter(|it| Inboxes::<P>::is_flat(*it) == is_flat).collect();
                together(&inboxes, job, is_flat, &numbers).await?;
            }
        } else {
            let calls = numbers.into_iter().map(|number| once(&inboxes, number));
            futures_util::future::join_all(calls).await;
        }
    }
}

/// The effect, and then what a third of the handlers do wrong.
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

async fn once<P>(inboxes: &Inboxes<P>, number: u32) -> Option<()>
where
    P: InboxPool + Clone + 'static,
{
    let (inbox, event) =
        (inboxes.inbox(Inboxes::<P>::is_flat(number)), inboxes.event(number).ok()?);
    let done = inbox.process(&event, async |tx, _| handle(tx, number).await).await;
    told(number, &done).then_some(())
}

/// Says so on stdout, at once, if the event may be acknowledged.
fn told(number: u32, done: &Result<Done<()>, InboxError>) -> bool {
    let is_done =
        matches!(done, Ok(Done::Now(()) | Done::Duplicate(_)) | Err(InboxError::Failed { .. }));
    // One write for a line: a kill leaves all of it, or nothing.
    is_done && io::stdout().lock().write_all(format!("{number}\n").as_bytes()).is_ok()
}

async fn together<P>(inboxes: &Inboxes<P>, job: &Job, is_flat: bool, numbers: &[u32]) -> Result<()>
where
    P: InboxPool + Clone + 'static,
{
    let inbox = inboxes.inbox(is_flat);
    let events: Vec<InboxEvent> =
        numbers.iter().map(|number| inboxes.event(*number)).collect::<Result<_>>()?;
    let number =
        |event: &InboxEvent| numbers[events.iter().position(|it| it == event).unwrap_or(0)];
    let done = if job.way == "each" {
        inbox.process_each(&events, async |tx, event, _| handle(tx, number(event)).await).await
    } else {
        inbox
            .process_batch(&events, async |tx, new| {
                let rows: Vec<String> =
                    new.iter().map(|event| format!("('{}')", event.id())).collect();
                // Poison does not belong into a batch that is handled as one.
                if new.iter().any(|event| number(event) % 30 == 7) {
                    return Err(WorkError::retry("a poison event among them"));
                }
                Ok(tx.run(&format!("INSERT INTO effects VALUES {}", rows.join(","))).await?)
            })
            .await
    };
    for (number, done) in numbers.iter().zip(done.into_iter().flatten()) {
        told(*number, &done);
    }
    Ok(())
}

async fn to_its_end<P>(inboxes: &Inboxes<P>, number: u32) -> Result<()>
where
    P: InboxPool + Clone + 'static,
{
    for _ in 0..200 {
        if once(inboxes, number).await.is_some() {
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err(anyhow::anyhow!("event {number} comes to no end")).context("settle")
}
