//! A connection for calls, with its statements prepared.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::try_join_all;
use rand::RngExt;
use semel_core::{Error, ErrorKind, Result};
use tokio_postgres::{Row, Statement, types::ToSql};

use crate::{
    connection::{Purpose, Session, in_time},
    error::{Trouble, explain},
    meta,
    settings::Settings,
    sql,
};

/// A connection that is ready for calls.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) session: Session,
    pub(crate) statements: Statements,
    /// Most of the last claims met a record.
    duplicates: AtomicBool,
    /// How long statements wait for locks now, and at most.
    wait: Mutex<Duration>,
    longest_wait: Duration,
}

#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) claim_one: Statement,
    pub(crate) claim_many: Statement,
    pub(crate) complete: Statement,
    pub(crate) renew: Statement,
    pub(crate) read: Statement,
    pub(crate) read_heavy: Statement,
    pub(crate) insert: Statement,
    pub(crate) update: Statement,
    pub(crate) delete: Statement,
    pub(crate) mark: Statement,
    pub(crate) locked: Statement,
    pub(crate) attempt: Statement,
}

pub(crate) type Params<'a> = [&'a (dyn ToSql + Sync)];

impl Link {
    /// How often a statement is tried that lost a deadlock or a conflict.
    const TRIES: u32 = 4;

    /// How long a statement waits for a lock: all calls of its batch wait with it.
    pub(crate) const LOCK_WAIT: Duration = Duration::from_millis(25);

    /// The least that the server knows.
    pub(crate) const NO_WAIT: Duration = Duration::from_millis(1);

    pub(crate) async fn open(settings: &Settings) -> Result<Self> {
        let session = Session::open(settings, Purpose::Calls).await?;
        in_time(settings, meta::agree(&session, settings)).await?;
        let statements = in_time(settings, prepare(&session, settings)).await?;
        let (wait, longest_wait) = (Mutex::new(settings.lock_timeout), settings.lock_timeout);
        let duplicates = AtomicBool::new(false);
        let link = Self { session, statements, duplicates, wait, longest_wait };
        in_time(settings, link.wait_for_locks(Self::LOCK_WAIT)).await?;
        Ok(link)
    }

    /// From here on, statements wait for a lock so long, or for the lock timeout if that is shorter. Costs a
    /// trip only if it changes something.
    ///
    /// # Errors
    ///
    /// The connection is not to be used again.
    pub(crate) async fn wait_for_locks(&self, wait: Duration) -> Result<()> {
        let wait = wait.min(self.longest_wait);
        let is = || self.wait.lock().unwrap_or_else(PoisonError::into_inner);
        if *is() == wait {
            return Ok(());
        }
        let set = format!("SET lock_timeout = {}", wait.as_millis());
        self.session.client.batch_execute(&set).await.map_err(|error| explain(&error))?;
        *is() = wait;
        Ok(())
    }

    /// True when the next claim is likely to meet a record, and the statement that shows it in the same
    /// trip is worth more than a plain insert.
    pub(crate) fn expects_duplicates(&self) -> bool {
        self.duplicates.load(Ordering::Relaxed)
    }

    pub(crate) fn expect_duplicates(&self, expected: bool) {
        self.duplicates.store(expected, Ordering::Relaxed);
    }

    pub(crate) async fn query(
        &self,
        statement: &Statement,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, Trouble> {
        let client = &self.session.client;
        again(|| async { Ok(client.query(statement, params).await?) }).await
    }

    pub(crate) async fn execute(
        &self,
        statement: &Statement,
        params: &Params<'_>,
    ) -> Result<u64, Trouble> {
        let client = &self.session.client;
        again(|| async { Ok(client.execute(statement, params).await?) }).await
    }
}

/// Tries what lost against others a few times more. Each try is a transaction that left nothing behind.
pub(crate) async fn again<T, F>(attempt: impl Fn() -> F) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, Trouble>>,
{
    for tried in 1.. {
        match attempt().await {
            Err(Trouble::Again(error)) if tried >= Link::TRIES => {
                return Err(Trouble::Said(error));
            }
            Err(Trouble::Again(error)) => {
                tracing::debug!(%error, "postgres: tried again");
                let longest = 5 << tried;
                let pause = rand::rng().random_range(1..=longest);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            other => return other,
        }
    }
    unreachable!("the last try returns")
}

async fn prepare(session: &Session, settings: &Settings) -> Result<Statements> {
    let names = &settings.names;
    let texts = [
        sql::claim_one(names),
        sql::claim_many(names),
        sql::complete(names),
        sql::renew(names),
        sql::read(names),
        sql::read_heavy(names),
        sql::insert(names),
        sql::update(names),
        sql::delete(names),
        sql::mark(names),
        sql::locked(names),
        sql::attempt(names),
    ];
    let prepared = try_join_all(texts.iter().map(|text| session.client.prepare(text))).await;
    let prepared: [Statement; 12] = prepared
        .map_err(|error| explain(&error))?
        .try_into()
        .map_err(|_| Error::new(ErrorKind::Unavailable, "postgres: a statement is missing"))?;
    let [
        claim_one,
        claim_many,
        complete,
        renew,
        read,
        read_heavy,
        insert,
        update,
        delete,
        mark,
        locked,
        attempt,
    ] = prepared;
    Ok(Statements {
        claim_one,
        claim_many,
        complete,
        renew,
        read,
        read_heavy,
        insert,
        update,
        delete,
        mark,
        locked,
        attempt,
    })
}
