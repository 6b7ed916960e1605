//! Makes the key of an event claimable again, or refuses.

use std::fmt;

use async_trait::async_trait;
use semel_core::{
    Decision, Effect, Engine, Forgetting, OnLostOwner, Record, Resolution, ResolveRequest,
    Sighting, State,
};

use super::{RedriveError, RedriveRefusal};
use crate::dead_letter::{DeadLetter, DeadLetterReason};

/// Where the outcomes of a consumer's events are recorded: the store of an engine or, for handlers that write in a
/// transaction, an inbox.
#[async_trait]
pub trait EventRecords: fmt::Debug + Send + Sync + 'static {
    /// Changes the record of the letter's event so that the next copy runs. A second call after it has no effect.
    ///
    /// # Errors
    ///
    /// [`RedriveError::Refused`] when the event has succeeded, is running, or needs an operator's decision;
    /// [`RedriveError::Unavailable`] when its record cannot be read or changed.
    async fn reopen(&self, letter: &DeadLetter, reason: &str) -> Result<ReopenedKey, RedriveError>;
}

const _: Option<&dyn EventRecords> = None; // Fails to compile if `EventRecords` stops being object safe.

/// What was done so that the next copy of an event runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReopenedKey {
    /// The letter has no key, or there is no record of it.
    NoRecord,
    /// The record already allowed another attempt.
    Unchanged,
    /// The record was deleted: a failure, or a key that was released and is out of attempts.
    Forgotten,
    /// The key was Dead, or its lost owner had used the last attempt. It is Open, and its attempts count from zero.
    Reopened,
}

#[async_trait]
impl EventRecords for Engine {
    async fn reopen(&self, letter: &DeadLetter, reason: &str) -> Result<ReopenedKey, RedriveError> {
        let Some(key) = &letter.key else { return Ok(ReopenedKey::NoRecord) };
        let sighting = self.store().get(key).await.map_err(RedriveError::Unavailable)?;
        let Some(sighting) = sighting.filter(|it| !it.record.is_expired(it.at)) else {
            return Ok(ReopenedKey::NoRecord);
        };
        if letter.reason == DeadLetterReason::Mismatch {
            return Err(RedriveRefusal::OtherEvent.into());
        }
        match change_for(&sighting)? {
            Change::None => Ok(ReopenedKey::Unchanged),
            Change::Forget => {
                match self.forget(key, reason).await.map_err(RedriveError::Unavailable)? {
                    Forgetting::Forgotten => Ok(ReopenedKey::Forgotten),
                    Forgetting::Missing => Ok(ReopenedKey::NoRecord),
                    Forgetting::Refused(_) => Err(RedriveRefusal::Changed.into()),
                }
            }
            Change::Reopen => {
                let request = reopening(&sighting.record);
                match self.resolve(&request, reason).await.map_err(RedriveError::Unavailable)? {
                    Resolution::Done => Ok(ReopenedKey::Reopened),
                    Resolution::Missing => Ok(ReopenedKey::NoRecord),
                    Resolution::Refused(_) => Err(RedriveRefusal::Changed.into()),
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Forget,
    Reopen,
}

/// What has to be done to a record. Forgetting compares nothing with what was read, so it is used only where no copy of
/// the event can succeed in between: a failure is final, and a key that is out of attempts can only become Dead.
/// Reopening changes the record only if it is still the one that was read.
fn change_for(Sighting { record, at }: &Sighting) -> Result<Change, RedriveRefusal> {
    let out_of_attempts = record.terms.max_attempts.is_some_and(|max| record.attempts >= max.get());
    match record.state {
        State::Open if out_of_attempts => Ok(Change::Forget),
        State::Open => Ok(Change::None),
        State::InProgress if record.is_leased(*at) => {
            Err(RedriveRefusal::Running { remaining: record.lease_until.since(*at) })
        }
        State::InProgress => match record.terms.on_lost_owner {
            // The next claim would make it Unknown.
            OnLostOwner::Hold => Err(RedriveRefusal::Unknown),
            OnLostOwner::Rerun if out_of_attempts => Ok(Change::Reopen),
            OnLostOwner::Rerun => Ok(Change::None),
        },
        State::Completed => match &record.outcome {
            Some(outcome) if !outcome.is_success() => Ok(Change::Forget),
            _ => Err(RedriveRefusal::Succeeded),
        },
        State::Unknown => Err(RedriveRefusal::Unknown),
        State::Dead => Ok(Change::Reopen),
        State::Erased => Err(RedriveRefusal::Erased),
    }
}

/// An attempt may have had an effect; that is what the operator accepts with the redrive.
fn reopening(record: &Record) -> ResolveRequest {
    ResolveRequest {
        key: record.key,
        seen_nonce: record.nonce,
        seen_token: record.token,
        decision: Decision::Reopen(Effect::Possible),
    }
}
