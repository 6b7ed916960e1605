//! Lists records, a page at a time.

use semel_core::{KeyHash, ListQuery, Record, Result};
use tokio_postgres::{Row, types::ToSql};

use crate::{
    maintenance::PgMaintenance,
    sql::{NOW, read_large, selection},
    text::escape,
    value::{ReadResult, read, state_code},
};

/// The fewest rows that are worth a round trip.
const MIN_PAGE_ROWS: usize = 64;

impl PgMaintenance {
    /// A page that is shorter than `query.limit` is the last one: records that cannot be shown are replaced by the
    /// next ones.
    pub(crate) async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        let (mut page, mut after) = (Vec::new(), query.after);
        loop {
            let limit = (query.limit - page.len()).max(MIN_PAGE_ROWS);
            let rows = self.rows(query, after, limit).await?;
            for row in &rows {
                if page.len() == query.limit {
                    return Ok(page);
                }
                let (key, result) = read(row)?;
                page.extend(self.readable(&key, result).await?.filter(|it| query.matches(it)));
                after = Some(key);
            }
            if rows.len() < limit {
                return Ok(page);
            }
        }
    }

    async fn rows(
        &self,
        query: &ListQuery,
        after: Option<KeyHash>,
        limit: usize,
    ) -> Result<Vec<Row>> {
        let after = after.as_ref().map_or(&[][..], |key| key.as_bytes());
        let namespace = query.namespace.as_deref().map(escape);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&after, &limit];
        params.extend(namespace.iter().map(|namespace| namespace as &(dyn ToSql + Sync)));
        self.query(&self.list_statement(query), &params).await
    }

    /// The record, read by itself if its outcome is large. `None` if it cannot be read: one bad record must not
    /// hide the others.
    async fn readable(&self, key: &KeyHash, result: Result<ReadResult>) -> Result<Option<Record>> {
        let result = match result {
            Ok(ReadResult::OutcomeOmitted) => self.read_large(key).await?,
            result => result,
        };
        match result {
            Ok(ReadResult::Record(read)) => Ok(read.stored.map(|stored| stored.record)),
            Ok(ReadResult::OutcomeOmitted | ReadResult::OtherKey(_)) | Err(_) => {
                tracing::error!(%key, "postgres: a record that cannot be read is left out of a list");
                Ok(None)
            }
        }
    }

    /// The state is part of the text, so that the planner knows which index serves it.
    fn list_statement(&self, query: &ListQuery) -> String {
        let (records, selection) = (self.settings().names.records(), selection(true));
        let state = query.state.map(|state| format!("AND t.state = {}", state_code(state)));
        let namespace = query.namespace.as_ref().map_or("", |_| "AND t.namespace = $3");
        format!(
            "SELECT t.key_hash, {NOW}, {selection} FROM {records} t
             WHERE t.key_hash > $1 {} {namespace}
               AND (t.expires_at IS NULL OR t.expires_at > (SELECT {NOW}))
             ORDER BY t.key_hash LIMIT $2",
            state.unwrap_or_default()
        )
    }

    async fn read_large(&self, key: &KeyHash) -> Result<Result<ReadResult>> {
        let keys = vec![key.as_bytes().as_slice()];
        let rows = self.query(&read_large(&self.settings().names), &[&keys]).await?;
        // The statement returns one row for each key.
        rows.first().map_or(Ok(Ok(ReadResult::OutcomeOmitted)), |row| Ok(read(row)?.1))
    }
}
