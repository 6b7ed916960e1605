//! What the comment on a table says to whoever looks after it, beside whatever else it says.

use std::time::Duration;

use semel_core::{Error, Result};

use super::{InboxPool, InboxVariant, PgInbox, tx::TxError, upkeep::DAY};

/// Which days are forgotten.
pub(super) const DROPPED: &str = r"semel: dropped before (\d{4}-\d\d-\d\d)";
/// After how long the source may deliver again.
const WINDOW: &str = r"semel: source window (\d+) s";

/// The window of a source of which nobody said one: as long as Kafka and Pub/Sub keep events by themselves.
pub(super) const WINDOW_UNSAID: Duration = Duration::from_secs(7 * DAY);

impl<P: InboxPool> PgInbox<P> {
    /// Writes down which day is the first that is not dropped; it never goes back.
    pub(super) async fn note_dropped(&self) -> Result<(), TxError> {
        let days = self.days();
        let note = format!(
            "'semel: dropped before ' || to_char(
               greatest((now() AT TIME ZONE 'UTC')::date - {days}, substring(said FROM '{DROPPED}')::date),
               'YYYY-MM-DD')"
        );
        self.note(DROPPED, &note).await
    }

    /// Writes down the window of the source, so that nobody who looks after the table forgets sooner; it never gets
    /// shorter.
    pub(super) async fn note_window(&self) -> Result<()> {
        let window = self.about.options.policy.source_window;
        if self.noted_window().await?.is_some_and(|noted| noted >= window) {
            return Ok(());
        }
        let secs = window.as_secs();
        let note = format!(
            "format('semel: source window %s s', greatest({secs}, substring(said FROM '{WINDOW}')::numeric))"
        );
        match self.note(WINDOW, &note).await {
            Err(error) if error.is_forbidden() => {
                tracing::warn!(
                    "inbox: only the owner of {} can note on it that the source may deliver again after {}; \
                     `semel purge` goes by what is noted there",
                    self.table(),
                    days(window)
                );
                Ok(())
            }
            done => Ok(done?),
        }
    }

    /// Refuses to forget what another may still need: who looks after a table for all keeps to the longest window.
    pub(super) async fn keep_to_window(&self) -> Result<()> {
        let is_for_all = self.about.is_operator || self.about.variant == InboxVariant::Partitioned;
        if !is_for_all {
            return Ok(());
        }
        let (noted, policy) = (self.noted_window().await?, &self.about.options.policy);
        let unsaid = if self.about.is_operator { WINDOW_UNSAID } else { policy.source_window };
        let (window, retention) = (noted.unwrap_or(unsaid), policy.retention);
        if retention >= window {
            return Ok(());
        }
        let whose = match noted {
            Some(_) => "is the longest source_window that a consumer of the table has declared",
            None => {
                "is taken for granted, because no consumer of the table has declared a source_window"
            }
        };
        Err(Error::invalid(format!(
            "{refusal}; {} {whose}. If it is wrong, note the right one on the table: COMMENT ON TABLE {table} \
             IS 'semel: source window SECONDS s'",
            days(window),
            refusal = too_short(retention, window),
            table = self.about.names.records(),
        )))
    }

    async fn noted_window(&self) -> Result<Option<Duration>, TxError> {
        let noted = format!("SELECT {}", self.noted(WINDOW));
        let noted = self.pool.ask(&noted, &[]).await?;
        Ok(noted.map(|secs| Duration::from_secs(secs.parse().unwrap_or(u64::MAX))))
    }

    /// SQL for what such a note says.
    pub(super) fn noted(&self, note: &str) -> String {
        let table = self.about.names.records();
        format!("substring(obj_description('{table}'::regclass, 'pg_class') FROM '{note}')")
    }

    /// Puts `new`, an expression in which `said` is the comment so far, in the place of such a note.
    async fn note(&self, note: &str, new: &str) -> Result<(), TxError> {
        let table = self.about.names.records();
        let statement = format!(
            "DO $$ DECLARE said text := coalesce(obj_description('{table}'::regclass, 'pg_class'), '');
             BEGIN EXECUTE format('COMMENT ON TABLE {table} IS %L',
               ltrim(regexp_replace(said, ' *{note}', '') || ' ' || {new}));
             END $$"
        );
        self.changing(&statement).await
    }
}

/// Why events are to be kept for longer.
pub(super) fn too_short(retention: Duration, window: Duration) -> String {
    let (retention, window) = (days(retention), days(window));
    format!(
        "retention: {retention} is shorter than the {window} after which the source may deliver again, and a late \
         copy would run twice; keep events for longer"
    )
}

fn days(span: Duration) -> String {
    match (span.as_secs() / DAY, span.as_secs() % DAY) {
        (days @ 1.., 0) => format!("{days} d"),
        _ => format!("{} s", span.as_secs_f64()),
    }
}
