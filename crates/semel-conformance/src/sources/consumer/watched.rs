//! The source and the dead-letter sink of one process: they write to the journal, and do nothing once the process is
//! dead.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use semel_consumer::{
    ConsumerPlan, Delivery, Message, Settlement, Source, SourceInfo,
    dead_letter::{DeadLetter, DeadLetterSink, MemoryDeadLetters},
};
use semel_core::{Error, ErrorKind, Finding, Outcome, Result};

use super::{
    Step,
    handler::{Identity, event_id},
};
use crate::breakable::Switch;

impl Identity {
    /// An error if the process is dead, so that nothing leaves it.
    fn check_alive(&self) -> Result<()> {
        match self.dead.is_set() {
            true => Err(Error::new(ErrorKind::Unavailable, "this process was killed")),
            false => Ok(()),
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.number)
    }
}

/// The source under test as one process has it.
#[derive(Debug)]
pub(super) struct WatchedSource {
    pub(super) source: Arc<dyn Source>,
    pub(super) process: Identity,
    /// Settlements that get lost from now on.
    pub(super) lost: Arc<AtomicU32>,
}

#[async_trait]
impl Source for WatchedSource {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>> {
        self.process.check_alive()?;
        let deliveries = self.source.receive(max).await?;
        Ok(deliveries.into_iter().map(|delivery| self.watched(delivery)).collect())
    }

    fn info(&self) -> SourceInfo {
        self.source.info()
    }

    async fn lag(&self) -> Result<Option<u64>> {
        self.process.check_alive()?;
        self.source.lag().await
    }

    async fn reply(&self, message: &Message, outcome: &Outcome) -> Result<()> {
        self.process.check_alive()?;
        self.source.reply(message, outcome).await
    }

    async fn check(&self, plan: &ConsumerPlan) -> Result<Vec<Finding>> {
        self.source.check(plan).await
    }

    async fn close(&self) -> Result<()> {
        self.process.check_alive()?;
        self.source.close().await
    }
}

impl WatchedSource {
    fn watched(&self, delivery: Delivery) -> Delivery {
        let (message, settlement) = delivery.into_parts();
        let id = event_id(&message);
        self.process.write(&id, Step::Received);
        let (process, lost) = (self.process.clone(), self.lost.clone());
        Delivery::new((*message).clone(), WatchedSettlement { settlement, process, id, lost })
    }
}

struct WatchedSettlement {
    settlement: Arc<dyn Settlement>,
    process: Identity,
    id: Arc<str>,
    lost: Arc<AtomicU32>,
}

impl WatchedSettlement {
    /// Writes the step before it happens, so that it never seems later than it was.
    fn sends(&self, step: Step) -> Result<()> {
        self.process.check_alive()?;
        let is_lost = self.lost.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        self.process.write(&self.id, if is_lost { Step::Lost } else { step });
        match is_lost {
            true => Err(Error::new(ErrorKind::Unavailable, "the suite lost this settlement")),
            false => self.process.check_alive(),
        }
    }
}

#[async_trait]
impl Settlement for WatchedSettlement {
    async fn ack(&self) -> Result<()> {
        self.sends(Step::Acked)?;
        self.settlement.ack().await
    }

    async fn nack(&self, delay: Duration) -> Result<()> {
        self.sends(Step::Nacked(delay))?;
        self.settlement.nack(delay).await
    }

    async fn reject(&self, reason: &str) -> Result<()> {
        self.sends(Step::Rejected)?;
        self.settlement.reject(reason).await
    }

    async fn extend(&self) -> Result<()> {
        self.process.check_alive()?;
        self.settlement.extend().await
    }
}

/// The dead letters of all processes, as one process has them.
#[derive(Debug)]
pub(super) struct WatchedDeadLetters {
    pub(super) letters: MemoryDeadLetters,
    pub(super) process: Identity,
    /// Takes the sink down while it is set.
    pub(super) down: Switch,
}

#[async_trait]
impl DeadLetterSink for WatchedDeadLetters {
    async fn publish(&self, letter: &DeadLetter) -> Result<()> {
        self.process.check_alive()?;
        let id = event_id(&letter.message);
        if self.down.is_set() {
            self.process.write(&id, Step::Unpublished);
            return Err(Error::new(ErrorKind::Unavailable, "the suite took the sink down"));
        }
        self.letters.publish(letter).await?;
        if let Some(key) = letter.key {
            self.process.journal.learn(key, &id);
        }
        self.process.write(&id, Step::Published { id: letter.id.clone() });
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        self.letters.name()
    }
}
