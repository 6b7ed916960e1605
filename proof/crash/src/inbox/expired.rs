//! Rows past their retention: the run adds them again and again, and the workers' maintenance removes them.

use std::fmt;

use anyhow::Result;
use sqlx::Row;

use super::tables::{pool, runtime};

/// Partitions and events past their retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiredRows {
    /// Partitions of the partitioned table.
    pub partitions: i64,
    /// Events in the table without partitions.
    pub events: i64,
}

impl fmt::Display for ExpiredRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} partitions and {} events past their retention", self.partitions, self.events)
    }
}

/// Events that are added at once.
const EVENTS: i64 = 20;

impl ExpiredRows {
    /// Adds a partition with events, and as many events to the table without partitions. `turn` must be new.
    pub(super) fn add(&mut self, url: &str, turn: u32) -> Result<()> {
        let events = format!(
            "SELECT 'chaos', 'old-{turn}-' || n, 'Tested', day, now() - interval '40 days'
             FROM generate_series(1, {EVENTS}) AS n"
        );
        let columns = "(consumer, event_id, event_type, occurred_on, processed_at)";
        // The lock comes first, as in an inbox: a worker that detaches a partition holds it while it waits for readers.
        let statements = format!(
            "BEGIN; LOCK TABLE ONLY processed_events IN SHARE UPDATE EXCLUSIVE MODE;
             DO $$ DECLARE
               day date := (now() AT TIME ZONE 'UTC')::date - 40 - {turn};
               part text := 'processed_events_p' || to_char(day, 'YYYYMMDD');
             BEGIN
               EXECUTE format('CREATE TABLE %I (LIKE processed_events INCLUDING ALL)', part);
               EXECUTE format('INSERT INTO %I {columns} {quoted}', part) USING day;
               EXECUTE format('ALTER TABLE processed_events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                 part, day, day + 1);
               INSERT INTO flat_events {columns} {events};
             END $$; COMMIT",
            quoted = events.replace('\'', "''").replace(" day,", " $1,"),
        );
        runtime()?.block_on(async {
            sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&pool(url).await?).await?;
            anyhow::Ok(())
        })?;
        self.partitions += 1;
        self.events += EVENTS;
        Ok(())
    }

    /// Counts the expired rows in the tables.
    pub(super) fn left(url: &str) -> Result<Self> {
        runtime()?.block_on(async {
            let left = "SELECT
               (SELECT count(*) FROM pg_class WHERE relname ~ '^processed_events_p[0-9]{8}$'
                  AND to_date(right(relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - 35),
               (SELECT count(*) FROM flat_events WHERE event_id LIKE 'old-%')";
            let row = sqlx::query(left).fetch_one(&pool(url).await?).await?;
            Ok(Self { partitions: row.get(0), events: row.get(1) })
        })
    }
}
