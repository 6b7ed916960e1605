//! Counts attempts at an event where nothing else does: a transaction that does not commit leaves no trace.
//!
//! An attempt is a row of its own, `NUMBER#ID`, of the consumer `NAME attempts`. It is written before the transaction
//! begins, so it is there if the handler kills the process. Maintenance removes it with other old events.

use semel_core::{Error, ErrorKind, Result, WorkError};

use crate::{InboxEvent, InboxPool, InboxVariant, PgInbox, inbox::InboxSettings, sql::array};

/// The count ends here: an event has far fewer attempts.
const MOST: u32 = 100;

impl<P: InboxPool> PgInbox<P> {
    /// Counts one more attempt at an event, and returns how many there were with it. Call it before
    /// [`process`](Self::process), for events whose attempts nothing else counts. `None` if the table cannot count: it
    /// is of the variant `Minimal`.
    ///
    /// # Errors
    ///
    /// When the server fails. The attempt may be counted then.
    pub async fn count_attempt(&self, event: &InboxEvent) -> Result<Option<u32>> {
        let settings = &self.settings;
        if settings.variant == InboxVariant::Minimal {
            return Ok(None);
        }
        let consumer = format!("{} attempts", settings.consumer);
        let (id, day, most) = (settings.id(event)?, settings.day(event)?, MOST.to_string());
        let parameters = [id.as_str(), event.event_type(), &consumer, day, &most];
        let counted = self.pool.query_text(&settings.statements.count_attempt, &parameters).await;
        let counted = match counted {
            // No attempt at an event of this day has begun: it would have made the partition.
            Err(error) if settings.is_partition_missing(&error) => return Ok(Some(1)),
            counted => counted.map_err(Error::from)?,
        };
        let count = counted.and_then(|count| count.parse().ok());
        let unexpected =
            || Error::new(ErrorKind::Corrupt, "inbox: the server returned an unexpected reply");
        count.map(Some).ok_or_else(unexpected)
    }

    /// Takes back attempts that [`count_attempt`](Self::count_attempt) has counted, because their number matters no more:
    /// the attempt did not begin, or the event is recorded.
    ///
    /// # Errors
    ///
    /// When the server fails. The attempts stay counted then.
    pub async fn discount_attempts(&self, attempts: &[(InboxEvent, u32)]) -> Result<()> {
        if attempts.is_empty() {
            return Ok(());
        }
        let settings = &self.settings;
        let (mut ids, mut days) = (Vec::new(), Vec::new());
        for (event, attempt) in attempts {
            ids.push(format!("{attempt}#{}", settings.id(event)?));
            days.push(settings.day(event)?);
        }
        let (ids, days) = (array(ids.iter().map(String::as_str)), array(days.into_iter()));
        let consumer = format!("{} attempts", settings.consumer);
        let parameters = [ids.as_str(), &consumer, &days];
        self.pool.query_text(&settings.statements.unclaim, &parameters).await?;
        Ok(())
    }
}

/// True if a handler failed with a conflict between transactions. [`PgInbox::process`] repeats it then, in a new
/// transaction.
#[must_use]
pub fn is_conflict(error: &WorkError) -> bool {
    InboxSettings::is_retryable(error)
}
