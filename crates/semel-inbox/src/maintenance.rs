//! Maintenance of an inbox's table: installs it, purges old events, creates and drops partitions, reads its size.

use std::time::Duration;

use semel_core::{Error, ErrorKind, Result};

use crate::{
    InboxPool, InboxTransaction, InboxTx, InboxVariant, PgInbox, process::BEGIN,
    transaction::TxError,
};

/// The most rows that one statement deletes.
const BATCH: u32 = 5000;
pub(crate) const DAY: u64 = 24 * 3600;
/// As [`BEGIN`], with an isolation level in which statements after the lock see what was committed before it, whatever
/// the default of the server is.
const BEGIN_CHANGE: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL semel.begun = 'on'; SAVEPOINT semel";

/// What [`PgInbox::maintain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceReport {
    /// Events that were deleted.
    pub purged: u64,
    /// Partitions that were created.
    pub made: u32,
    /// Partitions that were dropped.
    pub dropped: u32,
}

/// The size of an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxStats {
    /// Events, by the server's estimate.
    pub rows: u64,
    /// Bytes on disk, with indexes.
    pub bytes: u64,
    /// The age of the oldest event.
    pub oldest: Duration,
}

impl<P: InboxPool> PgInbox<P> {
    /// Creates the table if it does not exist, and its partitions of the days ahead. Writes the source window to the
    /// comment of the table.
    ///
    /// # Errors
    ///
    /// When the server fails or the role lacks a right.
    pub async fn install(&self) -> Result<()> {
        if self.settings.variant == InboxVariant::Partitioned {
            self.check_server().await?;
        }
        let install = self.settings.variant.install(&self.settings.table);
        // Two nodes that start at once must not create the same table.
        self.with_maintenance_lock(&install).await?;
        self.write_window().await?;
        match self.settings.variant {
            InboxVariant::Partitioned => self.install_partitions().await,
            InboxVariant::Minimal | InboxVariant::Full => Ok(()),
        }
    }

    /// Refuses a server that is too old for partitions. Building an inbox without `install` does not contact the
    /// server, which may be down; then maintenance reports it.
    async fn check_server(&self) -> Result<()> {
        let reply =
            self.pool.query_text("SELECT current_setting('server_version_num')", &[]).await?;
        let missing =
            || Error::new(ErrorKind::Corrupt, "inbox: the server did not report its version");
        let version = reply.and_then(|version| version.parse().ok()).ok_or_else(missing)?;
        self.settings.variant.check_server(version)
    }

    /// Removes events older than the retention: drops partitions, or deletes rows in bounded batches. Creates the
    /// partitions of the days ahead. If several processes run it at once, one does the work.
    ///
    /// All consumers of a partitioned table share the retention: give them the same.
    ///
    /// # Errors
    ///
    /// When the server fails or the role lacks a right. In tables of other variants than [`InboxVariant::Full`], where
    /// maintenance removes the events of all consumers, also when the retention is shorter than the source window in
    /// the table's comment.
    pub async fn maintain(&self) -> Result<MaintenanceReport> {
        if !self.settings.is_operator {
            self.write_window().await?;
        }
        match self.settings.variant {
            InboxVariant::Partitioned => {
                self.check_server().await?;
                let (created, dropped) =
                    (self.create_partitions_ahead().await, self.drop_partitions().await);
                Ok(MaintenanceReport { made: created?, dropped: dropped?, purged: 0 })
            }
            InboxVariant::Minimal | InboxVariant::Full => {
                self.check_window().await?;
                let mut report = MaintenanceReport::default();
                loop {
                    let purged = self.purge(BATCH).await?;
                    report.purged += u64::from(purged);
                    if purged < BATCH {
                        return Ok(report);
                    }
                }
            }
        }
    }

    /// Deletes up to `limit` events of this consumer that are older than the retention, with attempts that were counted
    /// for it, and returns how many.
    ///
    /// # Errors
    ///
    /// When the server fails.
    pub async fn purge(&self, limit: u32) -> Result<u32> {
        let (table, lock) = (self.settings.table.quoted(), self.lock());
        let whose = match self.settings.variant {
            InboxVariant::Minimal => "$2::text IS NOT NULL",
            // Other consumers may have a longer retention; an operator purges for all.
            InboxVariant::Full | InboxVariant::Partitioned => {
                "t.consumer IN (coalesce(nullif($2::text, ''), t.consumer), $2::text || ' attempts')"
            }
        };
        // A ctid is unique within one partition only.
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
        let consumer = if self.settings.is_operator { "" } else { &self.settings.consumer };
        let reply = self.pool.query_text(&purge, &[&self.retention(), consumer]).await?;
        Ok(reply.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// The size of the inbox.
    ///
    /// # Errors
    ///
    /// When the server fails.
    pub async fn stats(&self) -> Result<InboxStats> {
        let table = self.settings.table.quoted();
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
        let reply = self.pool.query_text(&stats, &[]).await?.unwrap_or_default();
        let (rows, bytes, oldest): (u64, u64, u64) =
            serde_json::from_str(&reply).map_err(unexpected_reply)?;
        Ok(InboxStats { rows, bytes, oldest: Duration::from_secs(oldest) })
    }

    /// Runs statements that change the table, after taking the table's lock. A process that detaches a partition holds
    /// this lock and waits for all readers. Without taking the lock first, a statement here could be a reader and wait
    /// for that lock half-way: a deadlock.
    pub(crate) async fn change_table(&self, statements: &str) -> Result<(), TxError> {
        let parent = self.settings.table.quoted();
        let (mut tx, _) = self.pool.begin(BEGIN_CHANGE, "SELECT '1'::text", &[]).await?;
        let statements = format!(
            "SET LOCAL lock_timeout = '10s';
             LOCK TABLE ONLY {parent} IN SHARE UPDATE EXCLUSIVE MODE; {statements}"
        );
        tx.run(&statements).await?;
        tx.commit().await
    }

    /// Runs statements while no other process installs. Claims queue behind a lock that these statements wait for, so
    /// the lock timeout is short.
    async fn with_maintenance_lock(&self, statements: &str) -> Result<(), TxError> {
        let lock = format!("SELECT pg_advisory_xact_lock({})::text", self.lock());
        let (mut tx, _) = self.pool.begin(BEGIN, &lock, &[]).await?;
        tx.run(&format!("SET LOCAL lock_timeout = '2s'; {statements}")).await?;
        tx.commit().await
    }

    /// The advisory lock of the process that maintains the table.
    fn lock(&self) -> i64 {
        self.settings.table.maintenance_lock()
    }

    fn retention(&self) -> String {
        self.settings.options.policy.retention.as_secs_f64().to_string()
    }

    /// Whole days that are kept before today, with one more for producers whose clock is behind UTC.
    pub(crate) fn days(&self) -> u64 {
        self.settings.options.policy.retention.as_secs().div_ceil(DAY) + 1
    }
}

pub(crate) fn unexpected_reply(_: serde_json::Error) -> Error {
    Error::new(ErrorKind::Corrupt, "inbox: the server returned an unexpected reply")
}
