//! `impl FailbackWindow`: how long this store is still read after an outage, kept in the companion table.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::{Error, FailbackWindow, Result, Span};
use tokio_postgres::Row;

use crate::{PostgresStore, meta::FAILOVER, sql_types::span_to_sql, store::run_in_background};

/// Milliseconds until the window ends, by the server's clock.
const LEFT: &str = "greatest(0, (extract(epoch FROM m.until - clock_timestamp()) * 1000)::bigint)";

/// A hundred years, so that the end stays within PostgreSQL's range of timestamps.
const LONGEST: i64 = 100 * 365 * 86_400_000;

#[async_trait]
impl FailbackWindow for PostgresStore {
    async fn remaining(&self) -> Result<Option<Duration>> {
        let maintenance = self.maintenance();
        run_in_background(async move {
            let meta = maintenance.settings().names.meta();
            let read = format!("SELECT {LEFT} FROM {meta} m WHERE m.name = $1");
            Ok(remaining(&maintenance.query_now(&read, &[&FAILOVER]).await?))
        })
        .await?
    }

    async fn extend_to(&self, span: Duration) -> Result<Duration> {
        if self.maintenance().settings().skip_setup {
            return Err(Error::invalid(
                "postgres: this store was opened with skip_setup and extends no failback window",
            ));
        }
        let (maintenance, span) = (self.maintenance(), span_to_sql(Span::from(span)).min(LONGEST));
        run_in_background(async move {
            let meta = maintenance.settings().names.meta();
            let extend = format!(
                "INSERT INTO {meta} AS m (name, until)
                 VALUES ($1, clock_timestamp() + $2::bigint * interval '1 millisecond')
                 ON CONFLICT (name) DO UPDATE SET until = greatest(m.until, excluded.until)
                 RETURNING {LEFT}"
            );
            Ok(remaining(&maintenance.query_now(&extend, &[&FAILOVER, &span]).await?)
                .unwrap_or_default())
        })
        .await?
    }
}

fn remaining(rows: &[Row]) -> Option<Duration> {
    let millis = rows.first()?.try_get::<_, i64>(0).unwrap_or(0);
    Some(Duration::from_millis(millis.max(0).unsigned_abs()))
}
