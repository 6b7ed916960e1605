//! A process that handles events, and writes each run to the ledger, until it is killed.

use std::{fs::File, io::Write, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Result;
use async_trait::async_trait;
use clap::Args;
use semel_consumer::{
    Consumer, Event, EventContext,
    dead_letter::{DeadLetter, DeadLetterSink},
    pipeline::{Backoff, CircuitBreaker},
};
use semel_core::{Cached, WorkError};
use serde::Deserialize;
use tokio::time::sleep;

use super::{
    LEASE, MAX_ATTEMPTS,
    broker::{Addresses, patiently},
    evidence::{Line, Step},
};
use crate::process::die_with_parent;

/// The arguments of a process that consumes events.
#[derive(Args, Clone, Debug)]
pub struct ConsumerJob {
    #[command(flatten)]
    servers: Addresses,
    /// The number of this process.
    #[arg(long)]
    process: u32,
    /// The file that runs are written to.
    #[arg(long)]
    ledger: PathBuf,
}

#[derive(Deserialize)]
struct Body {
    id: String,
}

/// Consumes events until it is killed.
///
/// # Errors
///
/// When the consumer cannot start, or ends.
pub fn work(job: &ConsumerJob) -> Result<()> {
    die_with_parent()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(consume(job))
}

async fn consume(job: &ConsumerJob) -> Result<()> {
    let ledger = Arc::new(Ledger {
        file: File::options().append(true).open(&job.ledger)?,
        process: job.process,
    });
    // The server may be killed while this process starts.
    let broker = job.servers.broker();
    let (source, store, letters) = patiently(async || {
        Ok((broker.source().await?, job.servers.store().await?, broker.dead_letters().await?))
    })
    .await?;
    let letters = NotedDeadLetters { sink: letters, ledger: ledger.clone() };
    let consumer = Consumer::builder(source)
        .name("chaos")
        .store(Cached::new(store, 10_000))?
        .dead_letters(letters)
        .lease(LEASE)
        .max_attempts(MAX_ATTEMPTS)
        .backoff(Backoff { first: Duration::from_millis(50), max: Duration::from_millis(500) })
        // Failures are part of the run, and must not pause the source.
        .circuit_breaker(CircuitBreaker::new(u32::MAX, CircuitBreaker::PAUSES))
        .handler(move |event: Event<Body>, context: EventContext| {
            let ledger = ledger.clone();
            async move { handle(&ledger, event.data.id, context.attempt()).await }
        })
        .build()?;
    consumer.run().await?;
    Ok(())
}

/// Returns the id of the event, which becomes its outcome.
async fn handle(ledger: &Ledger, id: String, attempt: u32) -> Result<String, WorkError> {
    ledger.write(Step::Begins, &id);
    if rand::random_ratio(1, 10) {
        sleep(Duration::from_millis(rand::random_range(1..20))).await;
    }
    match id.split('-').next() {
        Some("poison") => {
            // Other events of this process end meanwhile, so that they do not share all of its deaths.
            sleep(Duration::from_millis(300)).await;
            std::process::abort();
        }
        Some("refused") => {
            ledger.write(Step::Refused, &id);
            Err(WorkError::failure("refused", "the run refuses this event"))
        }
        Some("retried") if attempt < MAX_ATTEMPTS / 2 && rand::random_bool(0.5) => {
            ledger.write(Step::Failed, &id);
            Err(WorkError::retry("the run fails this attempt"))
        }
        _ => {
            ledger.write(Step::Succeeded, &id);
            Ok(id)
        }
    }
}

/// Dead letters that are noted in the ledger once they are published.
#[derive(Debug)]
struct NotedDeadLetters<S> {
    sink: S,
    ledger: Arc<Ledger>,
}

#[async_trait]
impl<S: DeadLetterSink> DeadLetterSink for NotedDeadLetters<S> {
    async fn publish(&self, letter: &DeadLetter) -> semel_core::Result<()> {
        self.sink.publish(letter).await?;
        self.ledger.write(Step::DeadLettered, letter.event_id.as_deref().unwrap_or("?"));
        Ok(())
    }

    async fn check(&self) -> semel_core::Result<()> {
        self.sink.check().await
    }

    fn name(&self) -> String {
        self.sink.name()
    }
}

/// A file that all processes append to. What was written survives the process.
#[derive(Debug)]
struct Ledger {
    file: File,
    process: u32,
}

impl Ledger {
    fn write(&self, step: Step, id: &str) {
        let line = Line::Event { step, process: self.process, id: id.to_owned() }.to_string();
        // One call, so that lines of several processes do not mix.
        (&self.file).write_all(line.as_bytes()).expect("the ledger can be written");
    }
}
