//! Counts attempts at an event where nothing else does: a transaction that does not commit leaves no trace.
//!
//! An attempt is a row of its own, `NUMBER#ID`, of the consumer `NAME attempts`. It is written before the transaction
//! begins, so it is there if the handler kills the process. Maintenance removes it with other old events.
//!
//! The first attempts at many events can begin together, in one statement and for one transaction. Their rows have the
//! number 0, which counts as no attempt: if the process dies, it is not known of which event. Each of these events is
//! to be attempted in a transaction of its own from then on.

use std::collections::HashSet;

use semel_core::{Error, ErrorKind, Result, WorkError};

use crate::{
    InboxEvent, InboxPool, InboxVariant, PgInbox, inbox::InboxSettings, process::pause, sql::array,
};

/// The count ends here: an event has far fewer attempts.
const MOST: u32 = 100;
/// How often an attempt is counted again, if another process has counted one with the same number at the same time.
const TRIES: u32 = 20;
/// The number of an attempt that began together with those at other events.
const TOGETHER: u32 = 0;

/// An attempt at an event that [`PgInbox::count_attempt`] has counted, or [`PgInbox::begin_together`] has noted. No
/// other attempt has its number.
#[derive(Clone, Debug)]
pub struct CountedAttempt {
    event: InboxEvent,
    row: u32,
}

impl CountedAttempt {
    /// Which attempt this is; the first one is 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        if self.row == TOGETHER { 1 } else { self.row }
    }
}

/// How an attempt ended, for [`PgInbox::end_attempts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The event is recorded: its attempts are not needed any more.
    Recorded,
    /// The handler did not run: this was no attempt.
    NotBegun,
    /// The handler failed, and the event may be tried again: the attempt stays counted.
    Failed,
}

impl<P: InboxPool> PgInbox<P> {
    /// Counts one more attempt at an event. Call it before [`process`](Self::process), for events whose attempts nothing
    /// else counts, and [`end_attempts`](Self::end_attempts) after it. `None` if the table cannot count: it is of the
    /// variant `Minimal`.
    ///
    /// # Errors
    ///
    /// When the server fails. The attempt may be counted then.
    pub async fn count_attempt(&self, event: &InboxEvent) -> Result<Option<CountedAttempt>> {
        let settings = &self.settings;
        if settings.variant == InboxVariant::Minimal {
            return Ok(None);
        }
        let (id, day, most) = (settings.id(event)?, settings.day(event)?, MOST.to_string());
        let consumer = settings.attempts_consumer();
        let parameters = [id.as_str(), event.event_type(), &consumer, day, &most];
        for round in 1..=TRIES {
            let counted =
                self.pool.query_text(&settings.statements.count_attempt, &parameters).await;
            let counted = match counted {
                // No attempt at an event of this day has begun: it would have made the partition.
                Err(error) if settings.is_partition_missing(&error) => Some("1".to_owned()),
                counted => counted.map_err(Error::from)?,
            };
            if let Some(number) = counted {
                let row = number.parse().map_err(|_| unexpected_reply())?;
                return Ok(Some(CountedAttempt { event: event.clone(), row }));
            }
            // Another process has counted an attempt with this number since the statement began.
            pause(round).await;
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "inbox: too many processes count attempts at one event",
        ))
    }

    /// Notes, in one statement, that the first attempts at these events begin in one transaction. `None` for an event
    /// that had an attempt before, of which a process may have died: attempt it in a transaction of its own, after
    /// [`count_attempt`](Self::count_attempt). An attempt that is noted here counts only once it has ended as
    /// [`AttemptEnd::Failed`].
    ///
    /// # Errors
    ///
    /// When the server fails. The attempts may be noted then.
    pub async fn begin_together(
        &self,
        events: &[InboxEvent],
    ) -> Result<Vec<Option<CountedAttempt>>> {
        let settings = &self.settings;
        let first = |event: &InboxEvent| CountedAttempt { event: event.clone(), row: TOGETHER };
        if events.is_empty() || settings.variant == InboxVariant::Minimal {
            return Ok(events.iter().map(first).map(Some).collect());
        }
        let attempts: Vec<_> = events.iter().map(first).collect();
        let noted = match self.insert_attempts(&attempts, Some(1)).await {
            Ok(noted) => noted,
            // The claim makes the partition. An event of another day that had an attempt before is among those that
            // begin together for this one time, which counts for none of them.
            Err(error) if settings.is_partition_missing(&error) => {
                return Ok(attempts.into_iter().map(Some).collect());
            }
            Err(error) => return Err(error.into()),
        };
        let is_noted = |attempt: &CountedAttempt| {
            settings.attempt_id(&attempt.event, attempt.row).is_ok_and(|id| noted.contains(&id))
        };
        Ok(attempts.into_iter().map(|it| is_noted(&it).then_some(it)).collect())
    }

    /// Inserts the rows of these attempts, except those of events that have a row with the number `unless`. Returns the
    /// ids of the new rows.
    async fn insert_attempts(
        &self,
        attempts: &[CountedAttempt],
        unless: Option<u32>,
    ) -> Result<HashSet<String>, crate::TxError> {
        let settings = &self.settings;
        let (mut ids, mut types, mut days, mut others) = (vec![], vec![], vec![], vec![]);
        for CountedAttempt { event, row } in attempts {
            // The claim refuses an event that the table cannot hold.
            let Ok((id, day)) =
                settings.attempt_id(event, *row).and_then(|id| Ok((id, settings.day(event)?)))
            else {
                continue;
            };
            let other = unless.and_then(|number| settings.attempt_id(event, number).ok());
            ids.push(id);
            types.push(event.event_type());
            days.push(day);
            others.push(other.unwrap_or_default());
        }
        let consumer = settings.attempts_consumer();
        let (types, days) = (array(types.into_iter()), array(days.into_iter()));
        let ids = array(ids.iter().map(String::as_str));
        let others = array(others.iter().map(String::as_str));
        let parameters = [ids.as_str(), &types, &consumer, &days, &others];
        let reply = self.pool.query_text(&settings.statements.insert_attempts, &parameters).await?;
        serde_json::from_str(reply.as_deref().unwrap_or_default())
            .map_err(|error| crate::TxError::new(Some("XX000".to_owned()), error))
    }

    /// Says how attempts have ended. An event that is recorded has no attempts any more. The next attempts at the others
    /// are counted after those that failed, and after those that are not ended yet.
    ///
    /// # Errors
    ///
    /// When the server fails. The attempts stay as they were then.
    pub async fn end_attempts(&self, ended: &[(CountedAttempt, AttemptEnd)]) -> Result<()> {
        let settings = &self.settings;
        if settings.variant == InboxVariant::Minimal {
            return Ok(());
        }
        let (mut ids, mut days, mut failed) = (vec![], vec![], vec![]);
        for (CountedAttempt { event, row }, end) in ended {
            let gone = match end {
                AttemptEnd::Recorded => TOGETHER..=*row,
                // Another attempt at this event may be under way. Its row has another number.
                AttemptEnd::NotBegun => *row..=*row,
                AttemptEnd::Failed if *row == TOGETHER => {
                    failed.push(CountedAttempt { event: event.clone(), row: 1 });
                    continue;
                }
                AttemptEnd::Failed => continue,
            };
            for row in gone {
                ids.push(settings.attempt_id(event, row)?);
                days.push(settings.day(event)?);
            }
        }
        if !failed.is_empty() {
            self.insert_attempts(&failed, None).await?;
        }
        if ids.is_empty() {
            return Ok(());
        }
        let (ids, days) = (array(ids.iter().map(String::as_str)), array(days.into_iter()));
        let parameters = [ids.as_str(), &settings.attempts_consumer(), &days];
        self.pool.query_text(&settings.statements.unclaim, &parameters).await?;
        Ok(())
    }
}

impl InboxSettings {
    /// The consumer of the rows of attempts.
    pub(crate) fn attempts_consumer(&self) -> String {
        format!("{} attempts", self.consumer)
    }

    /// The id of the row of an attempt.
    fn attempt_id(&self, event: &InboxEvent, row: u32) -> Result<String> {
        Ok(format!("{row}#{}", self.id(event)?))
    }
}

fn unexpected_reply() -> Error {
    Error::new(ErrorKind::Corrupt, "inbox: the server returned an unexpected reply")
}

/// True if a handler failed with a conflict between transactions. [`PgInbox::process`] repeats it then, in a new
/// transaction.
#[must_use]
pub fn is_conflict(error: &WorkError) -> bool {
    InboxSettings::is_retryable(error)
}
