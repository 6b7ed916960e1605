//! What the comment on a table says to whoever looks after it, beside whatever else it says.

use std::time::Duration;

use semel_core::{Error, Result};

use crate::{InboxPool, InboxVariant, PgInbox, transaction::TxError, upkeep::DAY};

/// Which days are forgotten.
pub(crate) const DROPPED: &str = "semel: dropped before ([0-9]{4}-[0-9]{2}-[0-9]{2})";
/// After how long the source may deliver again.
const WINDOW: &str = "semel: source window ([0-9]+) s(?![a-z])";

/// The window of a source of which nobody said one: as long as Kafka and Pub/Sub keep events by themselves.
pub(crate) const WINDOW_UNSAID: Duration = Duration::from_secs(7 * DAY);

impl<P: InboxPool> PgInbox<P> {
    /// Writes down which day is the first that is not dropped; it never goes back.
    pub(crate) async fn note_dropped(&self) -> Result<(), TxError> {
        let days = self.days();
        let note = format!(
            "'semel: dropped before ' || to_char(
               greatest((now() AT TIME ZONE 'UTC')::date - {days}, substring(said FROM '{DROPPED}')::date),
               'YYYY-MM-DD')"
        );
        self.note(DROPPED, &note).await
    }

    /// Writes down the window of the source, so that nobody who looks after the table forgets sooner; it never gets
    /// shorter. A service goes on without: upkeep tries again.
    pub(crate) async fn note_window(&self) -> Result<()> {
        let window = self.about.options.policy.source_window;
        if self.noted_window().await?.is_some_and(|noted| noted >= window) {
            return Ok(());
        }
        let longest =
            format!("greatest({}, substring(said FROM '{WINDOW}')::numeric)", secs(window));
        let why = match self.is_owner().await? {
            false => "this role does not own the table".to_owned(),
            true => match self.note(WINDOW, &window_note(&longest)).await {
                Err(error) if error.is_locked() => error.to_string(),
                done => return Ok(done?),
            },
        };
        tracing::warn!(
            "inbox: that the source may deliver again after {} is not noted on {}, by which `semel purge` goes: {why}",
            days(window),
            self.table(),
        );
        Ok(())
    }

    /// Refuses to forget what another may still need: who looks after a table for all keeps to the longest window.
    pub(crate) async fn keep_to_window(&self) -> Result<()> {
        let is_for_all = self.about.is_operator || self.about.variant != InboxVariant::Full;
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
            "{}; {} {whose}. If it is wrong, let the owner of the table say so: {}",
            too_short(retention, window),
            days(window),
            self.pool.ask(&self.correction(retention), &[]).await?.unwrap_or_default(),
        )))
    }

    /// Asks for the statement that notes another window, and leaves the rest of the comment as it is.
    fn correction(&self, window: Duration) -> String {
        let (table, note) = (self.about.table.quoted(), window_note(&secs(window)));
        format!(
            "SELECT format('COMMENT ON TABLE {table} IS %L', {})
             FROM coalesce(obj_description('{table}'::regclass, 'pg_class'), '') AS said",
            replaced(WINDOW, &note)
        )
    }

    async fn is_owner(&self) -> Result<bool, TxError> {
        let owner = format!(
            "SELECT pg_has_role(relowner, 'USAGE')::text FROM pg_class WHERE oid = '{}'::regclass",
            self.about.table.quoted()
        );
        Ok(self.pool.ask(&owner, &[]).await?.as_deref() == Some("true"))
    }

    async fn noted_window(&self) -> Result<Option<Duration>, TxError> {
        let noted = format!("SELECT {}", self.noted(WINDOW));
        let noted = self.pool.ask(&noted, &[]).await?;
        Ok(noted.map(|secs| Duration::from_secs(secs.parse().unwrap_or(u64::MAX))))
    }

    /// SQL for what such a note says.
    pub(crate) fn noted(&self, note: &str) -> String {
        let table = self.about.table.quoted();
        format!("substring(obj_description('{table}'::regclass, 'pg_class') FROM '{note}')")
    }

    /// Puts `new`, an expression in which `said` is the comment so far, in the place of such a note.
    async fn note(&self, note: &str, new: &str) -> Result<(), TxError> {
        let table = self.about.table.quoted();
        let statement = format!(
            "DO $$ DECLARE said text := coalesce(obj_description('{table}'::regclass, 'pg_class'), '');
             BEGIN EXECUTE format('COMMENT ON TABLE {table} IS %L', {}); END $$",
            replaced(note, new)
        );
        self.changing(&statement).await
    }
}

/// SQL for `said` with `new` in the place of such a note.
fn replaced(note: &str, new: &str) -> String {
    format!("ltrim(regexp_replace(said, ' *{note}', '', 'g') || ' ' || {new})")
}

/// SQL for the note of a window of so many seconds.
fn window_note(secs: &str) -> String {
    format!("format('semel: source window %s s', {secs})")
}

/// Whole ones, and none too few.
fn secs(window: Duration) -> String {
    window.as_secs_f64().ceil().to_string()
}

/// Why events are to be kept for longer.
pub(crate) fn too_short(retention: Duration, window: Duration) -> String {
    let (retention, window) = (days(retention), days(window));
    format!(
        "retention: {retention} is shorter than the {window} after which the source may deliver again, and a late \
         copy would not be known; keep events for longer"
    )
}

fn days(span: Duration) -> String {
    match (span.as_secs() / DAY, span.as_secs() % DAY) {
        (days @ 1.., 0) => format!("{days} d"),
        _ => format!("{} s", span.as_secs_f64()),
    }
}
