//! Redrive: the event of a dead letter is published again, with its identity, so that its consumer processes it after
//! all.
//!
//! The order of the steps, and what a crash after each of them leaves. The letter is removed last, so it is there in
//! all cases, and the redrive can be repeated:
//!
//! 1. **The letter is read, and the record of its key allows another attempt.** A success is never touched. After a
//!    crash, a late copy of the message that the broker still delivers runs, which is what the operator wants. The
//!    second redrive finds no record or an open one.
//! 2. **Its ordering key is opened**, before the copy arrives: a parked key would make it a dead letter again. After a
//!    crash, later events of that key may run before this one.
//! 3. **A copy is published, and the broker has confirmed it.** After a crash, or without a confirmation, it may have
//!    arrived. The second redrive is refused if it runs or has succeeded. If it waits, there are two copies of one
//!    event, and the consumer runs one of them.
//! 4. **The letter is removed**, but only this one. If the copy has failed already, its new letter has the same id and
//!    stays.

mod error;
mod message;
mod records;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use semel_core::{Engine, Principal, Result, Scope};

pub use self::{
    error::{RedriveError, RedriveRefusal},
    records::{EventRecords, ReopenedKey},
};
use super::{DeadLetter, DeadLetterQueue};
use crate::{
    event::Event,
    message::Message,
    pipeline::park::{Unparked, open_parked},
};

/// The header with the id of the letter that a message was redriven from.
pub const REDRIVEN_FROM_HEADER: &str = "Semel-Redriven-From";

/// Publishes messages to a broker.
#[async_trait]
pub trait MessagePublisher: fmt::Debug + Send + Sync + 'static {
    /// Publishes to the topic of the message, and returns only after the broker has confirmed that it keeps the
    /// message.
    ///
    /// The fields of the message decide what the broker gets: its id, its ordering key, its address for replies.
    /// Headers in which a broker of the original message had these, such as `Nats-Msg-Id`, are not sent again.
    ///
    /// # Errors
    ///
    /// When there is no confirmation. The message may have arrived.
    async fn publish(&self, message: &Message) -> Result<()>;
}

const _: Option<&dyn MessagePublisher> = None; // Fails to compile if `MessagePublisher` stops being object safe.

/// Publishes the messages of dead letters again, one at a time.
#[derive(Clone, Debug)]
pub struct Redrive {
    engine: Engine,
    namespace: String,
    letters: Arc<dyn DeadLetterQueue>,
    publisher: Arc<dyn MessagePublisher>,
    /// Other places with records. They decide before the store of the engine.
    records: Vec<Arc<dyn EventRecords>>,
    allows_no_record: bool,
}

/// What a redrive did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redriven {
    /// The id of the letter.
    pub id: String,
    /// What was done to the record of its key in the engine's store.
    pub key: ReopenedKey,
    /// True if its ordering key was parked.
    pub unparked: bool,
    /// True if the letter was removed. False if it was replaced or removed meanwhile.
    pub removed: bool,
}

impl Redrive {
    /// Redrives `letters` of consumers that record in the store of `engine` under `namespace`.
    #[must_use]
    pub fn new(
        engine: Engine,
        namespace: impl Into<String>,
        letters: Arc<dyn DeadLetterQueue>,
        publisher: Arc<dyn MessagePublisher>,
    ) -> Self {
        let (namespace, records) = (namespace.into(), Vec::new());
        Self { engine, namespace, letters, publisher, records, allows_no_record: false }
    }

    /// Also redrives letters whose event was attempted and is not recorded, neither in the store nor in the other places.
    /// Otherwise that is an error: the store is probably not the consumer's, and in the consumer's the copy would be a
    /// duplicate. The record of an event is missing after its retention, and after an earlier redrive that broke off.
    #[must_use]
    pub fn without_record(self, allows_no_record: bool) -> Self {
        Self { allows_no_record, ..self }
    }

    /// Adds another place in which events are recorded. Without the inbox of a consumer whose handler writes in a
    /// transaction, a redriven copy would count as a duplicate of the recorded failure.
    #[must_use]
    pub fn also_recorded_in(mut self, records: Arc<dyn EventRecords>) -> Self {
        self.records.push(records);
        self
    }

    /// Publishes the message of this letter again, and removes the letter. The reason is logged.
    ///
    /// Do not redrive one letter from two processes at the same time. If one of them stops between its look at the
    /// recorded failure and the removal of that record, it may remove a success that came meanwhile.
    ///
    /// # Errors
    ///
    /// See [`RedriveError`]. The letter is kept, and a second redrive is safe.
    pub async fn redrive(&self, id: &str, reason: &str) -> Result<Redriven, RedriveError> {
        let letter = self.letter(id, reason).await?;
        let key = self.reopen_key(&letter, reason).await?;
        let unparked = self.open_ordering_key(&letter, reason).await?;
        let copy = message::copy_to_publish(&letter);
        self.publisher.publish(&copy).await.map_err(RedriveError::NotConfirmed)?;
        let removed = self.letters.remove(&letter).await.map_err(RedriveError::NotRemoved)?;
        tracing::info!(id, reason, ?key, unparked, removed, "dead letter redriven");
        Ok(Redriven { id: letter.id, key, unparked, removed })
    }

    /// Removes this letter without publishing its message. The reason is logged.
    ///
    /// # Errors
    ///
    /// [`RedriveError::NoReason`], [`RedriveError::NotFound`], or [`RedriveError::Unavailable`] when it may still be
    /// there.
    pub async fn discard(&self, id: &str, reason: &str) -> Result<(), RedriveError> {
        let letter = self.letter(id, reason).await?;
        match self.letters.remove(&letter).await.map_err(RedriveError::Unavailable)? {
            true => tracing::info!(id, reason, "dead letter discarded"),
            false => return Err(RedriveRefusal::Changed.into()),
        }
        Ok(())
    }

    async fn letter(&self, id: &str, reason: &str) -> Result<DeadLetter, RedriveError> {
        if reason.trim().is_empty() {
            return Err(RedriveError::NoReason);
        }
        let letter = self.letters.get(id).await.map_err(RedriveError::Unavailable)?;
        letter.ok_or_else(|| RedriveError::NotFound { id: id.to_owned() })
    }

    async fn reopen_key(
        &self,
        letter: &DeadLetter,
        reason: &str,
    ) -> Result<ReopenedKey, RedriveError> {
        let mut is_recorded = false;
        for records in &self.records {
            is_recorded |= records.reopen(letter, reason).await? != ReopenedKey::NoRecord;
        }
        let reopened = self.engine.reopen(letter, reason).await?;
        is_recorded |= reopened != ReopenedKey::NoRecord;
        let was_attempted = letter.key.is_some() && letter.reason.is_of_a_claim();
        match was_attempted && !is_recorded && !self.allows_no_record {
            true => Err(RedriveRefusal::NotRecorded.into()),
            false => Ok(reopened),
        }
    }

    /// True if the ordering key of the event was parked.
    async fn open_ordering_key(
        &self,
        letter: &DeadLetter,
        reason: &str,
    ) -> Result<bool, RedriveError> {
        let event = Event::from_message(letter.message.clone()).ok();
        let of_event = event.as_ref().and_then(Event::ordering_key);
        let Some(key) = of_event.or(letter.message.ordering_key.as_deref()) else {
            return Ok(false);
        };
        // The scope that the consumer parks its keys in.
        let scope = Scope::new(&*self.namespace, Principal::Anonymous, &*letter.consumer);
        let opened = open_parked(&self.engine, &scope, key, reason).await;
        match opened.map_err(RedriveError::Unavailable)? {
            Unparked::Yes => Ok(true),
            Unparked::No => Ok(false),
            Unparked::BeingParked => Err(RedriveRefusal::BeingParked.into()),
        }
    }
}
