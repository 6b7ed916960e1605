//! What is too old: added again and again, for the workers' upkeep to forget.

use std::fmt;

use anyhow::Result;
use sqlx::Row;

use super::tables::{pool, runtime};

/// Partitions and events past their retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Old {
    /// Partitions of the table that has them.
    pub partitions: i64,
    /// Events in the table without.
    pub events: i64,
}

impl fmt::Display for Old {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} partitions and {} events past their retention", self.partitions, self.events)
    }
}

/// Events of a turn.
const EVENTS: i64 = 20;

impl Old {
    /// Adds a partition with events, and as many events to the table without partitions. `turn` is in this storm once.
    pub(super) fn add(&mut self, url: &str, turn: u32) -> Result<()> {
        let events = format!(
            "SELECT 'storm', 'old-{turn}-' || n, 'Stormed', day, now() - interval '40 days'
             FROM generate_series(1, {EVENTS}) AS n"
        );
        let columns = "(consumer, event_id, event_type, occurred_on, processed_at)";
        // The lock comes first, as in an inbox: who detaches a partition has it and waits for readers.
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

    /// What is there.
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
