//! What the tables say at the end.

use std::{collections::BTreeSet, fmt};

use anyhow::{Context, Result};
use semel_store_postgres::{InboxPool, InboxVariant, PgInbox, PgInboxBuilder};
use sqlx::{PgPool, Row, postgres::PgPoolOptions};

/// An event's id.
pub(super) fn id(number: u32) -> String {
    format!("event-{number}")
}

/// What the tables say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events.
    pub events: i64,
    /// Events with one effect and one record, or with a record that says that it failed and no effect.
    pub right: i64,
    /// Some that are not.
    pub wrong: Vec<String>,
}

impl Tally {
    /// True when every event has what it must have.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.right == self.events && self.wrong.is_empty()
    }
}

impl fmt::Display for Tally {
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

/// Makes the tables, and says which days events are of: some within the retention, some to come, and none that has
/// a partition yet. Effects have no key: what happens twice is there twice.
pub(super) fn prepare(url: &str, events: u32) -> Result<Vec<String>> {
    runtime()?.block_on(async {
        let pool = pool(url).await?;
        parted(&pool).install(true).build().await?;
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

/// The inbox in partitions. Nothing of a storm is forgotten by it: no event is 30 days old.
pub(super) fn parted<P: InboxPool + Clone>(pool: &P) -> PgInboxBuilder<P> {
    PgInbox::builder(pool.clone()).consumer("storm").variant(InboxVariant::Partitioned)
}

/// The inbox without, which deletes what is too old.
pub(super) fn flat<P: InboxPool + Clone>(pool: &P) -> PgInboxBuilder<P> {
    PgInbox::builder(pool.clone()).consumer("storm").table("flat_events")
}

/// Of all events, or of those with these numbers.
pub(super) fn tally(url: &str, only: Option<&BTreeSet<i32>>) -> Result<Tally> {
    runtime()?.block_on(async {
        let pool = pool(url).await?;
        let seen = "SELECT e.event, e.n % 30 = 7, coalesce(f.effects, 0), coalesce(r.records, 0), coalesce(r.failed, 0), e.n
            FROM events AS e
            LEFT JOIN (SELECT event, count(*) AS effects FROM effects GROUP BY event) AS f ON f.event = e.event
            LEFT JOIN (SELECT event_id, count(*) AS records, count(*) FILTER (WHERE failed) AS failed
              FROM records GROUP BY event_id) AS r ON r.event_id = e.event";
        let mut tally = Tally::default();
        for row in sqlx::query(seen).fetch_all(&pool).await? {
            if only.is_some_and(|only| !only.contains(&row.get(5))) {
                continue;
            }
            let poison: bool = row.get(1);
            let seen: (i64, i64, i64) = (row.get(2), row.get(3), row.get(4));
            tally.events += 1;
            if seen == if poison { (0, 1, 1) } else { (1, 1, 0) } {
                tally.right += 1;
            } else if tally.wrong.len() < 10 {
                let event: String = row.get(0);
                tally.wrong.push(format!("{event}: effects, records, failed are {seen:?}"));
            }
        }
        Ok(tally)
    })
}
