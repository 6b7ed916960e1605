//! What keeps an inbox small: purging, partitions ahead, partitions dropped.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use semel_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::{
    InboxError, InboxPool, InboxTransaction, InboxTx, InboxVariant, PgInbox,
    process::{BEGIN, Stop, again},
    sql::array,
    table_comment::DROPPED,
    transaction::TxError,
};

/// Rows that one statement deletes at most.
const BATCH: u32 = 5000;
/// Days that have a partition before they come.
const AHEAD: u64 = 7;
pub(crate) const DAY: u64 = 24 * 3600;
/// The comment on a partition that is to be dropped.
const MARK: &str = "semel: past its retention, to be dropped";

/// How a partition belongs to its table.
#[derive(Clone, Copy, Debug, Deserialize)]
enum Part {
    Attached,
    /// Somebody detaches it, or began to and did not end it.
    Detaching,
    Detached,
}

/// As [`BEGIN`]. What was noted before the lock came is seen, whatever the default of the server is.
const BEGIN_CHANGE: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL semel.begun = 'on'; SAVEPOINT semel";

/// What [`PgInbox::upkeep`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Events that were deleted one by one.
    pub purged: u64,
    /// Partitions that were made.
    pub made: u32,
    /// Partitions that were dropped.
    pub dropped: u32,
}

/// How large an inbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxStats {
    /// Events, as the server estimates.
    pub rows: u64,
    /// Bytes on disk, with indexes.
    pub bytes: u64,
    /// The age of the oldest event.
    pub oldest: Duration,
}

impl<P: InboxPool> PgInbox<P> {
    /// Makes the table if it is not there, and its partitions for the days to come. Notes on it after how long the
    /// source may deliver again.
    ///
    /// # Errors
    ///
    /// When the server fails or the role may not.
    pub async fn install(&self) -> Result<()> {
        if self.about.variant == InboxVariant::Partitioned {
            self.check_server().await?;
        }
        let install = self.about.variant.install(&self.about.table);
        // Two nodes that start at once must not trip over each other.
        self.locked(&install).await?;
        self.note_window().await?;
        match self.about.variant {
            InboxVariant::Partitioned => self.install_partitions().await,
            InboxVariant::Minimal | InboxVariant::Full => Ok(()),
        }
    }

    /// A service starts although the days to come have to wait, as for an `ANALYZE`: upkeep makes them.
    async fn install_partitions(&self) -> Result<()> {
        let Err(error) = self.make_partitions().await else { return Ok(()) };
        let today = "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD')";
        let today = self.pool.ask(today, &[]).await?.unwrap_or_default();
        match self.lacking(BTreeSet::from([&*today])).await {
            Ok(lacking) if lacking.is_empty() => {
                tracing::warn!(%error, "inbox: partitions for the days to come are not made yet");
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Refuses a server that is too old for partitions. Who builds an inbox and makes nothing asks no server, which
    /// may be away just then: there upkeep tells.
    async fn check_server(&self) -> Result<()> {
        let said = self.pool.ask("SELECT current_setting('server_version_num')", &[]).await?;
        let unsaid = || Error::new(ErrorKind::Corrupt, "inbox: a server without a version");
        let version = said.and_then(|version| version.parse().ok()).ok_or_else(unsaid)?;
        self.about.variant.check_server(version)
    }

    /// Forgets events older than the retention: in partitions by dropping them, else in bounded batches. Makes
    /// partitions for the days to come. Of several processes one does it, and the others give way.
    ///
    /// Where there are partitions, all consumers of the table share the retention: give them the same.
    ///
    /// # Errors
    ///
    /// When the server fails or the role may not. In tables of other variants than [`InboxVariant::Full`], where it is for
    /// all, also when the retention is shorter than the source's window that another has noted.
    pub async fn upkeep(&self) -> Result<Upkeep> {
        if !self.about.is_operator {
            self.note_window().await?;
        }
        match self.about.variant {
            InboxVariant::Partitioned => {
                self.check_server().await?;
                let (made, dropped) = (self.make_partitions().await, self.drop_partitions().await);
                Ok(Upkeep { made: made?, dropped: dropped?, purged: 0 })
            }
            InboxVariant::Minimal | InboxVariant::Full => {
                self.keep_to_window().await?;
                let mut upkeep = Upkeep::default();
                loop {
                    let purged = self.purge(BATCH).await?;
                    upkeep.purged += u64::from(purged);
                    if purged < BATCH {
                        return Ok(upkeep);
                    }
                }
            }
        }
    }

    /// Deletes at most so many events of this consumer that are older than the retention, and says how many.
    ///
    /// # Errors
    ///
    /// When the server fails.
    pub async fn purge(&self, limit: u32) -> Result<u32> {
        let (table, lock) = (self.about.table.quoted(), self.lock());
        let whose = match self.about.variant {
            InboxVariant::Minimal => "$2::text IS NOT NULL",
            // What others keep for longer stays; an operator purges for all.
            InboxVariant::Full | InboxVariant::Partitioned => {
                "t.consumer = coalesce(nullif($2::text, ''), t.consumer)"
            }
        };
        // A place is one row's within its partition only.
        let purge = format!(
            "WITH lead AS MATERIALIZED (SELECT pg_try_advisory_xact_lock({lock}) AS is_mine),
             old AS MATERIALIZED (
               SELECT t.tableoid AS part, t.ctid AS place FROM lead, {table} AS t
               WHERE is_mine AND {whose} AND t.processed_at < now() - make_interval(secs => $1::text::float8)
               ORDER BY t.processed_at LIMIT {limit} FOR UPDATE OF t SKIP LOCKED
             ), gone AS (
               DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT place FROM old))
                 AND (tableoid, ctid) IN (SELECT part, place FROM old) RETURNING 1
             )
             SELECT count(*)::text FROM gone"
        );
        let consumer = if self.about.is_operator { "" } else { &self.about.consumer };
        let said = self.pool.ask(&purge, &[&self.retention(), consumer]).await?;
        Ok(said.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// How large the inbox is, for gauges.
    ///
    /// # Errors
    ///
    /// When the server fails.
    pub async fn stats(&self) -> Result<InboxStats> {
        let table = self.about.table.quoted();
        let stats = format!(
            "WITH parts AS (
               SELECT '{table}'::regclass AS part UNION SELECT relid FROM pg_partition_tree('{table}')
             )
             SELECT json_build_array(
               coalesce(sum(greatest(c.reltuples, 0)) FILTER (WHERE c.relkind = 'r'), 0)::bigint,
               sum(pg_total_relation_size(c.oid))::bigint,
               coalesce(extract(epoch FROM now() - (SELECT min(processed_at) FROM {table})), 0)::bigint)::text
             FROM parts JOIN pg_class AS c ON c.oid = parts.part"
        );
        let said = self.pool.ask(&stats, &[]).await?.unwrap_or_default();
        let (rows, bytes, oldest): (u64, u64, u64) = serde_json::from_str(&said).map_err(odd)?;
        Ok(InboxStats { rows, bytes, oldest: Duration::from_secs(oldest) })
    }

    async fn make_partitions(&self) -> Result<u32> {
        let span = format!(
            "SELECT coalesce(json_agg(to_char(day, 'YYYY-MM-DD')), '[]')::text FROM generate_series(
               (now() AT TIME ZONE 'UTC')::date, (now() AT TIME ZONE 'UTC')::date + {AHEAD}, interval '1 day') AS day
             WHERE to_regclass(format('%I.%I', '{}', '{}_p' || to_char(day, 'YYYYMMDD'))) IS NULL",
            self.about.table.schema, self.about.table.name
        );
        let days = self.pool.ask(&span, &[]).await?;
        let days: Vec<String> = serde_json::from_str(&days.unwrap_or_default()).map_err(odd)?;
        let mut made = 0;
        for day in &days {
            match self.make_partition(day).await {
                Ok(()) => made += 1,
                Err(error) if error.is_without_partition() && self.has_default().await? => {
                    return Err(self.default_is_in_the_way());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(made)
    }

    /// Made apart and then attached, so that nobody who inserts has to wait.
    async fn make_partition(&self, day: &str) -> Result<(), TxError> {
        let (schema, table, parent) =
            (&self.about.table.schema, &self.about.table.name, self.about.table.quoted());
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
        self.changing(&statements).await
    }

    /// Makes the partitions that these days lack, and says why some cannot be made.
    pub(crate) async fn make_missing(
        &self,
        days: BTreeSet<&str>,
    ) -> Result<HashMap<String, Error>, Stop> {
        let mut refused = HashMap::new();
        for day in self.lacking(days).await? {
            match self.partition_for(&day).await {
                Stop::For(InboxError::Store(error)) => drop(refused.insert(day, error)),
                Stop::Again(_) => {}
                stop => return Err(stop),
            }
        }
        Ok(refused)
    }

    /// Those of these days that no partition is for. A day that has one is served, however old it is.
    async fn lacking(&self, days: BTreeSet<&str>) -> Result<Vec<String>, Stop> {
        let parent = self.about.table.quoted();
        let lacking = format!(
            "SELECT coalesce(json_agg(day), '[]')::text FROM unnest($1::text::text[]) AS day
             WHERE NOT EXISTS (
               SELECT FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid,
                 LATERAL pg_get_expr(c.relpartbound, c.oid) AS bounds
               WHERE i.inhparent = '{parent}'::regclass AND NOT i.inhdetachpending AND (bounds = 'DEFAULT'
                 OR day::date >= coalesce(substring(bounds FROM 'FROM \\(''(.+?)''')::date, '-infinity')
                   AND day::date < coalesce(substring(bounds FROM 'TO \\(''(.+?)''')::date, 'infinity')))"
        );
        let said = self.pool.ask(&lacking, &[&array(days.into_iter())]).await?;
        Ok(serde_json::from_str(&said.unwrap_or_default()).map_err(odd)?)
    }

    /// An event whose day has no partition: one is made if the day is within the retention.
    pub(crate) async fn partition_for(&self, day: &str) -> Stop {
        // Never a day that was dropped: what was handled on it is forgotten.
        let within = format!(
            "SELECT ($1::text::date BETWEEN
               greatest((now() AT TIME ZONE 'UTC')::date - $2::text::int, {}::date)
               AND (now() AT TIME ZONE 'UTC')::date + 366)::text",
            self.noted(DROPPED)
        );
        match self.pool.ask(&within, &[day, &self.days().to_string()]).await {
            Ok(Some(within)) if within == "true" => match self.make_partition(day).await {
                Ok(()) => again("a partition was missing"),
                Err(error) => error.into(),
            },
            Ok(_) => Error::invalid(format!(
                "inbox: the event's day {day} is older than what is remembered, or far in the future; nobody \
                 can say whether it was handled: dead-letter it, or give the inbox a longer retention"
            ))
            .into(),
            Err(error) => error.into(),
        }
    }

    async fn drop_partitions(&self) -> Result<u32> {
        self.keep_to_window().await?;
        let (schema, table, parent) =
            (&self.about.table.schema, &self.about.table.name, self.about.table.quoted());
        // Not attached: a process ended between the two statements, and left its mark. What is half detached
        // comes first: a table has one at a time.
        let old = format!(
            "SELECT coalesce(json_agg(json_build_array(c.relname, CASE
               WHEN i.inhrelid IS NULL THEN 'Detached' WHEN i.inhdetachpending THEN 'Detaching'
               ELSE 'Attached' END) ORDER BY i.inhdetachpending DESC NULLS LAST), '[]')::text
             FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid AND i.inhparent = '{parent}'::regclass
             WHERE c.relnamespace = '{schema}'::regnamespace AND c.relname ~ '^{table}_p[0-9]{{8}}$'
               AND to_date(right(c.relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - $1::text::int
               AND (i.inhrelid IS NOT NULL OR obj_description(c.oid, 'pg_class') = '{MARK}')"
        );
        let said = self.pool.ask(&old, &[&self.days().to_string()]).await?;
        let old: Vec<(String, Part)> =
            serde_json::from_str(&said.unwrap_or_default()).map_err(odd)?;
        if !old.is_empty() {
            self.note_dropped().await?;
        }
        let mut dropped = 0;
        for (name, is) in old {
            match self.drop_partition(&name, is).await {
                Ok(()) => dropped += 1,
                Err(error) if error.is_not_ready() && self.has_default().await? => {
                    return Err(self.default_is_in_the_way());
                }
                Err(error)
                    if error.is_not_ready()
                        || error.is_again()
                        || self.is_others(&name, is).await? =>
                {
                    tracing::debug!("inbox: another process drops {name}: {error}");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(dropped)
    }

    fn default_is_in_the_way(&self) -> Error {
        let parent = self.about.table.quoted();
        Error::invalid(format!(
            "inbox: {parent} has a DEFAULT partition: beside one no other is dropped, and none is made for days \
             whose events it has; detach it with ALTER TABLE {parent} DETACH PARTITION, and insert its rows again"
        ))
    }

    async fn has_default(&self) -> Result<bool> {
        let parent = self.about.table.quoted();
        let default = format!(
            "SELECT (partdefid <> 0)::text FROM pg_partitioned_table WHERE partrelid = '{parent}'::regclass"
        );
        Ok(self.pool.ask(&default, &[]).await?.as_deref() == Some("true"))
    }

    /// Runs statements that change the table. Its lock comes before them: who detaches a partition has it, and may
    /// wait for everybody who reads, as a statement does that waits for it half-way.
    pub(crate) async fn changing(&self, statements: &str) -> Result<(), TxError> {
        let parent = self.about.table.quoted();
        let (mut tx, _) = self.pool.begin(BEGIN_CHANGE, "SELECT '1'::text", &[]).await?;
        let statements = format!(
            "SET LOCAL lock_timeout = '10s';
             LOCK TABLE ONLY {parent} IN SHARE UPDATE EXCLUSIVE MODE; {statements}"
        );
        tx.run(&statements).await?;
        tx.commit().await
    }

    /// Runs statements while nobody else installs. Whoever claims an event waits behind a lock that these wait for, so
    /// they do not wait long.
    async fn locked(&self, statements: &str) -> Result<(), TxError> {
        let lock = format!("SELECT pg_advisory_xact_lock({})::text", self.lock());
        let (mut tx, _) = self.pool.begin(BEGIN, &lock, &[]).await?;
        tx.run(&format!("SET LOCAL lock_timeout = '2s'; {statements}")).await?;
        tx.commit().await
    }

    /// Detached first, so that nobody who inserts has to wait.
    async fn drop_partition(&self, name: &str, is: Part) -> Result<(), TxError> {
        let (part, parent) =
            (format!("\"{}\".\"{name}\"", self.about.table.schema), self.about.table.quoted());
        let detach = |how| format!("ALTER TABLE {parent} DETACH PARTITION {part} {how}");
        match is {
            Part::Attached => {
                self.pool.run(&format!("COMMENT ON TABLE {part} IS '{MARK}'")).await?;
                self.pool.run(&detach("CONCURRENTLY")).await?;
            }
            Part::Detaching => self.pool.run(&detach("FINALIZE")).await?,
            Part::Detached => {}
        }
        self.pool.run(&format!("DROP TABLE {part}")).await
    }

    /// What was to be dropped is gone, or on its way by somebody else's doing.
    async fn is_others(&self, name: &str, was: Part) -> Result<bool> {
        let left = format!(
            "SELECT CASE WHEN i.inhrelid IS NULL THEN 'Detached' WHEN i.inhdetachpending THEN 'Detaching'
               ELSE 'Attached' END
             FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
             WHERE c.oid = to_regclass('\"{}\".\"{name}\"')",
            self.about.table.schema
        );
        let left = self.pool.ask(&left, &[]).await?;
        Ok(left.is_none_or(|left| left != format!("{was:?}")))
    }

    /// One process at a time looks after a table.
    fn lock(&self) -> i64 {
        self.about.table.upkeep_lock()
    }

    fn retention(&self) -> String {
        self.about.options.policy.retention.as_secs_f64().to_string()
    }

    /// Whole days that are kept, today not counted, and one for producers that are behind UTC.
    pub(crate) fn days(&self) -> u64 {
        self.about.options.policy.retention.as_secs().div_ceil(DAY) + 1
    }
}

fn odd(_: serde_json::Error) -> Error {
    Error::new(ErrorKind::Corrupt, "inbox: the server answered something else than was asked")
}
