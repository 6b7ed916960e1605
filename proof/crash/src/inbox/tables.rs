//! The tables of the run: created before it, counted after it.

use std::{collections::BTreeSet, fmt};

use anyhow::{Context, Result};
use semel_inbox::{InboxPool, InboxVariant, PgInbox, PgInboxBuilder};
use sqlx::{PgPool, Row, postgres::PgPoolOptions};

/// The id of an event.
pub(super) fn id(number: u32) -> String {
    format!("event-{number}")
}

/// How many events have what they must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxTally {
    /// Events.
    pub events: i64,
    /// Events with one effect and one record, or, if they fail, with a failed record and no effect.
    pub right: i64,
    /// Some of the others.
    pub wrong: Vec<String>,
}

impl InboxTally {
    /// True when every event has what it must have.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.right == self.events && self.wrong.is_empty()
    }
}

impl fmt::Display for InboxTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} events have one effect and one record", self.right, self.events)?;
        self.wrong.iter().try_for_each(|wrong| write!(f, "\n  BROKEN {wrong}"))
    }
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

pub(super) async fn pool(url: &str) -> Result<PgPool> {
    PgPoolOptions::new().max_connections(1).connect(url).await.context("connect")
}

/// Creates the tables and returns the days of the events: some within the retention, some in the future, none with a
/// partition yet. The table of effects has no key, so that an effect that happens twice is there twice.
pub(super) fn prepare(url: &str, events: u32) -> Result<Vec<String>> {
    runtime()?.block_on(async {
        let pool = pool(url).await?;
        partitioned(&pool).install(true).build().await?;
        flat(&pool).install(true).build().await?;
        let tables = format!(
            "CREATE TABLE effects (event text NOT NULL);
             CREATE TABLE events AS SELECT n, 'event-' || n AS event FROM generate_series(0, {events} - 1) AS n;
             CREATE VIEW records AS SELECT event_id, failed FROM processed_events
               UNION ALL SELECT event_id, failed FROM flat_events;
             DO $$ DECLARE part regclass; BEGIN
               FOR part IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'processed_events'::regclass LOOP
                 EXECUTE 'DROP TABLE ' || part;
               END LOOP;
             END $$"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(tables)).execute(&pool).await?;
        let days = "SELECT ((now() AT TIME ZONE 'UTC')::date + n)::text FROM generate_series(-14, 30, 4) AS n";
        let days = sqlx::query(days).fetch_all(&pool).await?;
        Ok(days.iter().map(|row| row.get(0)).collect())
    })
}

/// The partitioned inbox. Its maintenance removes no event of the run: none is 30 days old.
pub(super) fn partitioned<P: InboxPool + Clone>(pool: &P) -> PgInboxBuilder<P> {
    PgInbox::builder(pool.clone()).consumer("chaos").variant(InboxVariant::Partitioned)
}

/// The inbox without partitions.
pub(super) fn flat<P: InboxPool + Clone>(pool: &P) -> PgInboxBuilder<P> {
    PgInbox::builder(pool.clone()).consumer("chaos").table("flat_events")
}

/// Counts all events, or those with these numbers.
pub(super) fn tally(url: &str, only: Option<&BTreeSet<i32>>) -> Result<InboxTally> {
    runtime()?.block_on(async {
        let pool = pool(url).await?;
        let counts = "SELECT e.event, e.n % 30 = 7, coalesce(f.effects, 0), coalesce(r.records, 0), coalesce(r.failed, 0), e.n
            FROM events AS e
            LEFT JOIN (SELECT event, count(*) AS effects FROM effects GROUP BY event) AS f ON f.event = e.event
            LEFT JOIN (SELECT event_id, count(*) AS records, count(*) FILTER (WHERE failed) AS failed
              FROM records GROUP BY event_id) AS r ON r.event_id = e.event";
        let mut tally = InboxTally::default();
        for row in sqlx::query(counts).fetch_all(&pool).await? {
            if only.is_some_and(|only| !only.contains(&row.get(5))) {
                continue;
            }
            let poison: bool = row.get(1);
            let found: (i64, i64, i64) = (row.get(2), row.get(3), row.get(4));
            tally.events += 1;
            if found == if poison { (0, 1, 1) } else { (1, 1, 0) } {
                tally.right += 1;
            } else if tally.wrong.len() < 10 {
                let event: String = row.get(0);
                tally.wrong.push(format!("{event}: effects, records, failed are {found:?}"));
            }
        }
        Ok(tally)
    })
}
