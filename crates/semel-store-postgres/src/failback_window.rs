//! `impl FailbackWindow`: how long this store has to be asked after a failover, in the companion table.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::{Error, FailbackWindow, Result, Span};
use tokio_postgres::Row;

use crate::{PostgresStore, meta::FAILOVER, sql_types::span_to_sql, store::run_in_background};

/// Milliseconds until then, by the server's clock.
const LEFT: &str = "greatest(0, (extract(epoch FROM m.until - clock_timestamp()) * 1000)::bigint)";

/// A hundred years: beyond the ends of PostgreSQL's time nothing can be said.
const LONGEST: i64 = 100 * 365 * 86_400_000;

#[async_trait]
impl FailbackWindow for PostgresStore {
    async fn remaining(&self) -> Result<Option<Duration>> {
        let chores = self.chores();
        run_in_background(async move {
            let meta = chores.settings().names.meta();
            let read = format!("SELECT {LEFT} FROM {meta} m WHERE m.name = $1");
            Ok(left(&chores.ask(&read, &[&FAILOVER]).await?))
        })
        .await?
    }

    async fn extend_to(&self, span: Duration) -> Result<Duration> {
        if self.chores().settings().look_only {
            return Err(Error::invalid("postgres: this store is only looked at"));
        }
        let (chores, span) = (self.chores(), span_to_sql(Span::from(span)).min(LONGEST));
        run_in_background(async move {
            let meta = chores.settings().names.meta();
            let widen = format!(
                "INSERT INTO {meta} AS m (name, until)
                 VALUES ($1, clock_timestamp() + $2::bigint * interval '1 millisecond')
                 ON CONFLICT (name) DO UPDATE SET until = greatest(m.until, excluded.until)
                 RETURNING {LEFT}"
            );
            Ok(left(&chores.ask(&widen, &[&FAILOVER, &span]).await?).unwrap_or_default())
        })
        .await?
    }
}

fn left(rows: &[Row]) -> Option<Duration> {
    let millis = rows.first()?.try_get::<_, i64>(0).unwrap_or(0);
    Some(Duration::from_millis(millis.max(0).unsigned_abs()))
}
