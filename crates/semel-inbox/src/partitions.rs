//! Creates the partitions of the days ahead, and drops those past the retention.

use std::collections::{BTreeSet, HashMap};

use semel_core::{Error, Result};
use serde::Deserialize;

use crate::{
    InboxError, InboxPool, PgInbox,
    maintenance::unexpected_reply,
    process::{AttemptError, retry},
    sql::array,
    table_comment::DROPPED,
    transaction::TxError,
};

/// Days ahead of today that have a partition.
const AHEAD: u64 = 7;
/// The comment on a partition that is to be dropped.
const MARK: &str = "semel: past its retention, to be dropped";

/// Whether a partition is attached to its table.
#[derive(Clone, Copy, Debug, Deserialize)]
enum PartitionState {
    Attached,
    /// It is being detached, or a process began to detach it and was stopped.
    Detaching,
    Detached,
}

impl<P: InboxPool> PgInbox<P> {
    /// Creates the partitions of the days ahead. If that fails but today has a partition, the service starts anyway,
    /// and maintenance creates them later: an `ANALYZE` of the table, for example, blocks it for a while.
    pub(crate) async fn install_partitions(&self) -> Result<()> {
        let Err(error) = self.create_partitions_ahead().await else { return Ok(()) };
        let today = "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD')";
        let today = self.pool.query_text(today, &[]).await?.unwrap_or_default();
        match self.days_without_partition(BTreeSet::from([&*today])).await {
            Ok(missing) if missing.is_empty() => {
                tracing::warn!(%error, "inbox: the partitions of the days ahead are not created yet");
                Ok(())
            }
            _ => Err(error),
        }
    }

    pub(crate) async fn create_partitions_ahead(&self) -> Result<u32> {
        let query = format!(
            "SELECT coalesce(json_agg(to_char(day, 'YYYY-MM-DD')), '[]')::text FROM generate_series(
               (now() AT TIME ZONE 'UTC')::date, (now() AT TIME ZONE 'UTC')::date + {AHEAD}, interval '1 day') AS day
             WHERE to_regclass(format('%I.%I', '{}', '{}_p' || to_char(day, 'YYYYMMDD'))) IS NULL",
            self.settings.table.schema, self.settings.table.name
        );
        let days = self.pool.query_text(&query, &[]).await?;
        let days: Vec<String> =
            serde_json::from_str(&days.unwrap_or_default()).map_err(unexpected_reply)?;
        let mut created = 0;
        for day in &days {
            match self.create_partition(day).await {
                Ok(()) => created += 1,
                Err(error)
                    if error.is_without_partition() && self.has_default_partition().await? =>
                {
                    return Err(self.default_partition_error());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(created)
    }

    /// Creates the table first and attaches it then, so that inserts into other partitions need not wait.
    async fn create_partition(&self, day: &str) -> Result<(), TxError> {
        let (schema, table, parent) =
            (&self.settings.table.schema, &self.settings.table.name, self.settings.table.quoted());
        let name = format!("{table}_p{}", day.replace('-', ""));
        let statements = format!(
            "CREATE TABLE IF NOT EXISTS \"{schema}\".\"{name}\" (LIKE {parent} INCLUDING ALL);
             DO $$ BEGIN
               IF NOT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = '\"{schema}\".\"{name}\"'::regclass) THEN
                 ALTER TABLE {parent} ATTACH PARTITION \"{schema}\".\"{name}\"
                   FOR VALUES FROM ('{day}') TO ('{day}'::date + 1);
               END IF;
             END $$"
        );
        self.change_table(&statements).await
    }

    /// Creates the partitions that are missing for these days, and returns an error for each day that cannot have one.
    pub(crate) async fn create_missing_partitions(
        &self,
        days: BTreeSet<&str>,
    ) -> Result<HashMap<String, Error>, AttemptError> {
        let mut refused = HashMap::new();
        for day in self.days_without_partition(days).await? {
            match self.create_partition_for(&day).await {
                AttemptError::Final(InboxError::Store(error)) => drop(refused.insert(day, error)),
                AttemptError::Retry(_) => {}
                error => return Err(error),
            }
        }
        Ok(refused)
    }

    /// The days that have no partition. A day that has one is processed, however old it is.
    async fn days_without_partition(
        &self,
        days: BTreeSet<&str>,
    ) -> Result<Vec<String>, AttemptError> {
        let parent = self.settings.table.quoted();
        let query = format!(
            "SELECT coalesce(json_agg(day), '[]')::text FROM unnest($1::text::text[]) AS day
             WHERE NOT EXISTS (
               SELECT FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid,
                 LATERAL pg_get_expr(c.relpartbound, c.oid) AS bounds
               WHERE i.inhparent = '{parent}'::regclass AND NOT i.inhdetachpending AND (bounds = 'DEFAULT'
                 OR day::date >= coalesce(substring(bounds FROM 'FROM \\(''(.+?)''')::date, '-infinity')
                   AND day::date < coalesce(substring(bounds FROM 'TO \\(''(.+?)''')::date, 'infinity')))"
        );
        let reply = self.pool.query_text(&query, &[&array(days.into_iter())]).await?;
        Ok(serde_json::from_str(&reply.unwrap_or_default()).map_err(unexpected_reply)?)
    }

    /// Creates the partition of a day if the day is within the retention. Returns [`AttemptError::Retry`] then, so that
    /// the caller claims its event again.
    pub(crate) async fn create_partition_for(&self, day: &str) -> AttemptError {
        // Never a day that was dropped: the records of its events are lost.
        let within = format!(
            "SELECT ($1::text::date BETWEEN
               greatest((now() AT TIME ZONE 'UTC')::date - $2::text::int, {}::date)
               AND (now() AT TIME ZONE 'UTC')::date + 366)::text",
            self.note_expression(DROPPED)
        );
        match self.pool.query_text(&within, &[day, &self.days().to_string()]).await {
            Ok(Some(within)) if within == "true" => match self.create_partition(day).await {
                Ok(()) => retry("a partition was missing"),
                Err(error) => error.into(),
            },
            Ok(_) => Error::invalid(format!(
                "inbox: the event's day {day} is older than the retention, or far in the future, so it cannot be known \
                 whether it was processed: dead-letter it, or give the inbox a longer retention"
            ))
            .into(),
            Err(error) => error.into(),
        }
    }

    pub(crate) async fn drop_partitions(&self) -> Result<u32> {
        self.check_window().await?;
        let (schema, table, parent) =
            (&self.settings.table.schema, &self.settings.table.name, self.settings.table.quoted());
        // A detached partition with the mark is left of a process that stopped before it dropped the partition. A
        // half-detached one comes first, because a table can have only one.
        let old = format!(
            "SELECT coalesce(json_agg(json_build_array(c.relname, CASE
               WHEN i.inhrelid IS NULL THEN 'Detached' WHEN i.inhdetachpending THEN 'Detaching'
               ELSE 'Attached' END) ORDER BY i.inhdetachpending DESC NULLS LAST), '[]')::text
             FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid AND i.inhparent = '{parent}'::regclass
             WHERE c.relnamespace = '{schema}'::regnamespace AND c.relname ~ '^{table}_p[0-9]{{8}}$'
               AND to_date(right(c.relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - $1::text::int
               AND (i.inhrelid IS NOT NULL OR obj_description(c.oid, 'pg_class') = '{MARK}')"
        );
        let reply = self.pool.query_text(&old, &[&self.days().to_string()]).await?;
        let old: Vec<(String, PartitionState)> =
            serde_json::from_str(&reply.unwrap_or_default()).map_err(unexpected_reply)?;
        if !old.is_empty() {
            self.write_dropped().await?;
        }
        let mut dropped = 0;
        for (name, state) in old {
            match self.drop_partition(&name, state).await {
                Ok(()) => dropped += 1,
                Err(error) if error.is_not_ready() && self.has_default_partition().await? => {
                    return Err(self.default_partition_error());
                }
                Err(error)
                    if error.is_not_ready()
                        || error.is_retryable()
                        || self.is_done_by_another(&name, state).await? =>
                {
                    tracing::debug!("inbox: another process drops {name}: {error}");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(dropped)
    }

    fn default_partition_error(&self) -> Error {
        let parent = self.settings.table.quoted();
        Error::invalid(format!(
            "inbox: {parent} has a DEFAULT partition: with it, no other can be dropped, and none can be created for \
             days whose events it holds; detach it with ALTER TABLE {parent} DETACH PARTITION, and insert its rows again"
        ))
    }

    async fn has_default_partition(&self) -> Result<bool> {
        let parent = self.settings.table.quoted();
        let default = format!(
            "SELECT (partdefid <> 0)::text FROM pg_partitioned_table WHERE partrelid = '{parent}'::regclass"
        );
        Ok(self.pool.query_text(&default, &[]).await?.as_deref() == Some("true"))
    }

    /// Detaches the partition before it drops it, so that inserts need not wait.
    async fn drop_partition(&self, name: &str, state: PartitionState) -> Result<(), TxError> {
        let (part, parent) = (
            format!("\"{}\".\"{name}\"", self.settings.table.schema),
            self.settings.table.quoted(),
        );
        let detach = |how| format!("ALTER TABLE {parent} DETACH PARTITION {part} {how}");
        match state {
            PartitionState::Attached => {
                self.pool.run(&format!("COMMENT ON TABLE {part} IS '{MARK}'")).await?;
                self.pool.run(&detach("CONCURRENTLY")).await?;
            }
            PartitionState::Detaching => self.pool.run(&detach("FINALIZE")).await?,
            PartitionState::Detached => {}
        }
        self.pool.run(&format!("DROP TABLE {part}")).await
    }

    /// True if the partition is dropped, or its state has changed: another process is dropping it.
    async fn is_done_by_another(&self, name: &str, was: PartitionState) -> Result<bool> {
        let query = format!(
            "SELECT CASE WHEN i.inhrelid IS NULL THEN 'Detached' WHEN i.inhdetachpending THEN 'Detaching'
               ELSE 'Attached' END
             FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
             WHERE c.oid = to_regclass('\"{}\".\"{name}\"')",
            self.settings.table.schema
        );
        let state = self.pool.query_text(&query, &[]).await?;
        Ok(state.is_none_or(|state| state != format!("{was:?}")))
    }
}
