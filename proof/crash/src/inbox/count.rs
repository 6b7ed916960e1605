//! What the tables say at the end.

use std::{collections::BTreeSet, fmt};

use anyhow::{Context, Result};
use semel_store_postgres::{InboxVariant, PgInbox};
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

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

async fn pool(url: &str) -> Result<PgPool> {
    PgPoolOptions::new().max_connections(1).connect(url).await.context("connect")
}

/// Makes the tables, and says which day all events are of: one that has no partition yet. Effects have no key:
/// what happens twice is there twice.
pub(super) fn prepare(url: &str, events: u32) -> Result<String> {
    runtime()?.block_on(async {
        let pool = pool(url).await?;
        let tables = format!(
            "CREATE TABLE effects (event text NOT NULL);
             CREATE TABLE events AS SELECT n, 'event-' || n AS event FROM generate_series(0, {events} - 1) AS n;
             CREATE INDEX ON effects (event)"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(tables)).execute(&pool).await?;
        let day = sqlx::query("SELECT (current_date + 30)::text").fetch_one(&pool).await?.get(0);
        let inbox = PgInbox::builder(pool).consumer("storm").variant(InboxVariant::Partitioned);
        inbox.install(true).build().await?;
        Ok(day)
    })
}

/// Of all events, or of those with these numbers.
pub(super) fn tally(url: &str, only: Option<&BTreeSet<i32>>) -> Result<Tally> {
    runtime()?.block_on(async {
        let pool = pool(url).await?;
        let seen = "SELECT e.event, (e.n % 30 = 7) AS poison,
            (SELECT count(*) FROM effects AS f WHERE f.event = e.event) AS effects,
            (SELECT count(*) FROM processed_events AS p WHERE p.event_id = e.event) AS records,
            (SELECT count(*) FROM processed_events AS p WHERE p.event_id = e.event AND p.failed) AS failed, e.n
            FROM events AS e";
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
