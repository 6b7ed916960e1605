//! Notes in the comment of the table: which days are dropped, and the longest source window. Processes that maintain
//! the table read them. The rest of the comment stays as it is.

use std::time::Duration;

use semel_core::{Error, Result};

use crate::{InboxPool, InboxVariant, PgInbox, maintenance::DAY, transaction::TxError};

/// The pattern of the note with the first day that is not dropped.
pub(crate) const DROPPED: &str = "semel: dropped before ([0-9]{4}-[0-9]{2}-[0-9]{2})";
/// The pattern of the note with the source window.
const WINDOW: &str = "semel: source window ([0-9]+) s(?![a-z])";

/// The source window that is assumed if none is set: as long as Kafka and Pub/Sub keep events by default.
pub(crate) const DEFAULT_SOURCE_WINDOW: Duration = Duration::from_secs(7 * DAY);

impl<P: InboxPool> PgInbox<P> {
    /// Writes the first day that is not dropped. A later day in the comment stays.
    pub(crate) async fn write_dropped(&self) -> Result<(), TxError> {
        let days = self.days();
        let note = format!(
            "'semel: dropped before ' || to_char(
               greatest((now() AT TIME ZONE 'UTC')::date - {days}, substring(said FROM '{DROPPED}')::date),
               'YYYY-MM-DD')"
        );
        self.write_note(DROPPED, &note).await
    }

    /// Writes the source window, so that no process that maintains the table removes events sooner. A longer window in
    /// the comment stays. If the role may not write it, the service starts anyway, and maintenance tries again.
    pub(crate) async fn write_window(&self) -> Result<()> {
        let window = self.settings.options.policy.source_window;
        if self.read_window().await?.is_some_and(|written| written >= window) {
            return Ok(());
        }
        let longest =
            format!("greatest({}, substring(said FROM '{WINDOW}')::numeric)", secs(window));
        let why = match self.is_owner().await? {
            false => "this role does not own the table".to_owned(),
            true => match self.write_note(WINDOW, &window_note(&longest)).await {
                Err(error) if error.is_locked() => error.to_string(),
                done => return Ok(done?),
            },
        };
        tracing::warn!(
            "inbox: the source window of {} is not written to the comment of {}, which `semel purge` reads: {why}",
            days(window),
            self.table(),
        );
        Ok(())
    }

    /// Refuses a retention that is shorter than the longest source window of all consumers, if maintenance removes the
    /// events of all consumers.
    pub(crate) async fn check_window(&self) -> Result<()> {
        let is_for_all = self.settings.is_operator || self.settings.variant != InboxVariant::Full;
        if !is_for_all {
            return Ok(());
        }
        let (written, policy) = (self.read_window().await?, &self.settings.options.policy);
        let default =
            if self.settings.is_operator { DEFAULT_SOURCE_WINDOW } else { policy.source_window };
        let (window, retention) = (written.unwrap_or(default), policy.retention);
        if retention >= window {
            return Ok(());
        }
        let origin = match written {
            Some(_) => "is the longest source_window that a consumer of the table has declared",
            None => "is assumed, because no consumer of the table has declared a source_window",
        };
        Err(Error::invalid(format!(
            "{}; {} {origin}. If it is wrong, let the owner of the table run: {}",
            too_short(retention, window),
            days(window),
            self.pool.query_text(&self.correction(retention), &[]).await?.unwrap_or_default(),
        )))
    }

    /// A query for the statement that sets another window and leaves the rest of the comment as it is.
    fn correction(&self, window: Duration) -> String {
        let (table, note) = (self.settings.table.quoted(), window_note(&secs(window)));
        format!(
            "SELECT format('COMMENT ON TABLE {table} IS %L', {})
             FROM coalesce(obj_description('{table}'::regclass, 'pg_class'), '') AS said",
            replaced(WINDOW, &note)
        )
    }

    async fn is_owner(&self) -> Result<bool, TxError> {
        let owner = format!(
            "SELECT pg_has_role(relowner, 'USAGE')::text FROM pg_class WHERE oid = '{}'::regclass",
            self.settings.table.quoted()
        );
        Ok(self.pool.query_text(&owner, &[]).await?.as_deref() == Some("true"))
    }

    async fn read_window(&self) -> Result<Option<Duration>, TxError> {
        let query = format!("SELECT {}", self.note_expression(WINDOW));
        let window = self.pool.query_text(&query, &[]).await?;
        Ok(window.map(|secs| Duration::from_secs(secs.parse().unwrap_or(u64::MAX))))
    }

    /// An SQL expression for the value of a note.
    pub(crate) fn note_expression(&self, pattern: &str) -> String {
        let table = self.settings.table.quoted();
        format!("substring(obj_description('{table}'::regclass, 'pg_class') FROM '{pattern}')")
    }

    /// Replaces a note by `new`, an SQL expression in which `said` is the current comment.
    async fn write_note(&self, pattern: &str, new: &str) -> Result<(), TxError> {
        let table = self.settings.table.quoted();
        let statement = format!(
            "DO $$ DECLARE said text := coalesce(obj_description('{table}'::regclass, 'pg_class'), '');
             BEGIN EXECUTE format('COMMENT ON TABLE {table} IS %L', {}); END $$",
            replaced(pattern, new)
        );
        self.change_table(&statement).await
    }
}

/// An SQL expression for the comment `said` with `new` in the place of a note.
fn replaced(pattern: &str, new: &str) -> String {
    format!("ltrim(regexp_replace(said, ' *{pattern}', '', 'g') || ' ' || {new})")
}

/// An SQL expression for the note of a window.
fn window_note(secs: &str) -> String {
    format!("format('semel: source window %s s', {secs})")
}

/// Whole seconds, rounded up.
fn secs(window: Duration) -> String {
    window.as_secs_f64().ceil().to_string()
}

/// Why a retention is refused.
pub(crate) fn too_short(retention: Duration, window: Duration) -> String {
    let (retention, window) = (days(retention), days(window));
    format!(
        "retention: {retention} is shorter than the {window} after which the source may deliver again, and a late \
         copy would run again; keep events for longer"
    )
}

fn days(span: Duration) -> String {
    match (span.as_secs() / DAY, span.as_secs() % DAY) {
        (days @ 1.., 0) => format!("{days} d"),
        _ => format!("{} s", span.as_secs_f64()),
    }
}
