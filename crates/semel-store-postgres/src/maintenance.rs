//! What is no step of a key, on connections of its own: list, stats, purge, lead, and short words between nodes.

use std::{sync::Arc, time::Duration};

use semel_core::{KeyHash, ListQuery, Record, Result, Span, State, Stats};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};
use tokio_postgres::{Row, types::ToSql};

use crate::{
    connection::prepared::{Params, again},
    connection::{Purpose, Session, in_time},
    error::{Trouble, timed_out},
    meta,
    settings::Settings,
    sql::{NOW, read_heavy, selection},
    sql_types::span_to_sql,
    text::escape,
    value::{Reading, read, state_code},
};

/// Does chores.
#[derive(Debug)]
pub(crate) struct Chores {
    settings: Arc<Settings>,
    /// Names this process among those that may lead.
    holder: [u8; 16],
    long: Desk,
    /// For a word that somebody waits for while the other desk is at work. Connected when it is first needed.
    short: Desk,
}

/// A connection that does one thing at a time.
#[derive(Debug)]
struct Desk {
    settings: Arc<Settings>,
    session: Mutex<Option<Session>>,
}

/// Up to this many records are counted; beyond, the server's estimate will do.
const COUNTED: i64 = 10_000;

/// Rows that are worth a trip.
const FEW: usize = 64;

impl Desk {
    async fn query(&self, statement: &str, params: &Params<'_>) -> Result<Vec<Row>> {
        self.query_over(self.session.lock().await, statement, params).await
    }

    async fn query_over(
        &self,
        mut place: MutexGuard<'_, Option<Session>>,
        statement: &str,
        params: &Params<'_>,
    ) -> Result<Vec<Row>> {
        let session = match place.take().filter(|session| !session.is_gone()) {
            Some(session) => session,
            None => self.connect().await?,
        };
        let attempt = again(|| async {
            let answer = session.client.query(statement, params).await;
            answer.map_err(|error| Trouble::from(error).or_again())
        });
        let answer = match timeout(self.settings.chore_timeout(), attempt).await {
            Ok(answer) => answer,
            Err(_) => Err(Trouble::Lost(timed_out())),
        };
        if !matches!(answer, Err(Trouble::Lost(_))) {
            *place = Some(session);
        }
        answer.map_err(Trouble::into_error)
    }

    async fn connect(&self) -> Result<Session> {
        let session = Session::open(&self.settings, Purpose::Chores).await?;
        in_time(&self.settings, meta::agree(&session, &self.settings)).await?;
        Ok(session)
    }
}

impl Chores {
    pub(crate) fn new(settings: Arc<Settings>, session: Session) -> Self {
        let long = Desk { settings: settings.clone(), session: Mutex::new(Some(session)) };
        let short = Desk { settings: settings.clone(), session: Mutex::default() };
        Self { settings, holder: rand::random(), long, short }
    }

    /// Runs one statement, after those before it.
    pub(crate) async fn query(&self, statement: &str, params: &Params<'_>) -> Result<Vec<Row>> {
        self.long.query(statement, params).await
    }

    /// Runs one short statement within the time of a call, over the desk that is free.
    pub(crate) async fn ask(&self, statement: &str, params: &Params<'_>) -> Result<Vec<Row>> {
        let asking = async {
            match self.long.session.try_lock() {
                Ok(place) => self.long.query_over(place, statement, params).await,
                Err(_) => self.short.query(statement, params).await,
            }
        };
        let answer = timeout(self.settings.call_timeout, asking).await;
        answer.unwrap_or_else(|_| Err(timed_out()))
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Tells other nodes that a key changed.
    pub(crate) async fn tell(&self, key: &KeyHash) -> Result<()> {
        let channel = self.settings.names.channel();
        let tell = "SELECT pg_notify($1, $2)::text";
        self.ask(tell, &[&channel, &key.to_hex()]).await.map(drop)
    }

    /// True when this process does the chores of all for `term`.
    pub(crate) async fn lead(&self, term: Duration) -> Result<bool> {
        let meta = self.settings.names.meta();
        let lead = format!(
            "INSERT INTO {meta} AS m (name, holder, until)
             VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond')
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
             WHERE m.holder = excluded.holder OR m.until IS NULL OR m.until <= clock_timestamp()
             RETURNING name"
        );
        // A term beyond this is a mistake that would leave everybody without cleanup.
        let term = span_to_sql(Span::from(term)).min(86_400_000);
        let rows = self.query(&lead, &[&meta::CLEANUP, &self.holder.as_slice(), &term]).await?;
        Ok(!rows.is_empty())
    }

    pub(crate) async fn stats(&self) -> Result<Stats> {
        let records = self.settings.names.records();
        let [unknown, dead] = [State::Unknown, State::Dead].map(state_code);
        let count = format!(
            "SELECT (SELECT count(*) FROM (SELECT FROM {records} LIMIT {COUNTED} + 1) AS counted),
               (SELECT reltuples::bigint FROM pg_class WHERE oid = $1::text::regclass),
               (SELECT count(*) FROM {records} WHERE state = {unknown}),
               (SELECT count(*) FROM {records} WHERE state = {dead})"
        );
        let rows = self.query(&count, &[&records]).await?;
        let number = |place: usize| rows.first().and_then(|row| row.try_get::<_, i64>(place).ok());
        let number = |place: usize| number(place).unwrap_or(0).max(0);
        let records = if number(0) > COUNTED { number(0).max(number(1)) } else { number(0) };
        let [records, unknown, dead] = [records, number(2), number(3)].map(i64::unsigned_abs);
        Ok(Stats { records, unknown, dead })
    }

    /// A page that is shorter than asked for is the last one: what cannot be shown makes room for others.
    pub(crate) async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        let (mut page, mut after) = (Vec::new(), query.after);
        loop {
            let asked = (query.limit - page.len()).max(FEW);
            let rows = self.rows(query, after, asked).await?;
            for row in &rows {
                if page.len() == query.limit {
                    return Ok(page);
                }
                let (key, reading) = read(row)?;
                page.extend(self.shown(&key, reading).await?.filter(|it| query.matches(it)));
                after = Some(key);
            }
            if rows.len() < asked {
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
        self.query(&self.listing(query), &params).await
    }

    /// One that cannot be read must not hide the others.
    async fn shown(&self, key: &KeyHash, light: Result<Reading>) -> Result<Option<Record>> {
        let reading = match light {
            Ok(Reading::LeftOut) => self.read_heavy(key).await?,
            reading => reading,
        };
        match reading {
            Ok(Reading::Found(found)) => Ok(found.seen.map(|seen| seen.record)),
            Ok(Reading::LeftOut | Reading::Foreign(_)) | Err(_) => {
                tracing::error!(%key, "postgres: a record that cannot be read is left out of a list");
                Ok(None)
            }
        }
    }

    /// The state stands in the text, so that the planner knows which index serves it.
    fn listing(&self, query: &ListQuery) -> String {
        let (records, selection) = (self.settings.names.records(), selection(true));
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

    async fn read_heavy(&self, key: &KeyHash) -> Result<Result<Reading>> {
        let keys = vec![key.as_bytes().as_slice()];
        let rows = self.query(&read_heavy(&self.settings.names), &[&keys]).await?;
        // One row for each key that was asked for.
        rows.first().map_or(Ok(Ok(Reading::LeftOut)), |row| Ok(read(row)?.1))
    }
}
