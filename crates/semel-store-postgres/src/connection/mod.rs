//! One connection: opened, set up and checked. What is not fit for records never gets further.

pub(crate) mod prepared;

use std::{future::poll_fn, ops::Deref, pin::pin};

use semel_core::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Notification, SimpleQueryMessage, error::DbError};

use crate::{
    error::{explain, refused},
    settings::Settings,
};

/// A connection that the server answers on.
#[derive(Debug)]
pub struct Session {
    pub(crate) client: Client,
    pub(crate) facts: Facts,
    driver: Driver,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Claims and whatever else somebody waits for.
    Calls,
    /// Listing, cleaning up, migrating.
    Chores,
    /// News from and for other nodes.
    News,
}

/// What the server says about itself.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) read_only: bool,
    pub(crate) synchronous_commit: String,
    pub(crate) fsync: String,
    pub(crate) full_page_writes: String,
    /// Replicas that a commit waits for; empty for none.
    pub(crate) standbys: String,
    pub(crate) encoding: String,
    /// 150018 is 15.18.
    pub(crate) version: u32,
}

/// Moves bytes for a client. Dropped, it takes the socket along, whatever is under way.
#[derive(Debug)]
pub(crate) struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Session {
    /// Connects, sets up and refuses what is not fit.
    pub(crate) async fn open(settings: &Settings, purpose: Purpose) -> Result<Self> {
        Self::listening(settings, purpose, |_| {}).await
    }

    /// The same, and hands over notifications.
    pub(crate) async fn listening(
        settings: &Settings,
        purpose: Purpose,
        heard: impl FnMut(Notification) + Send + 'static,
    ) -> Result<Self> {
        let session = Self::unchecked(settings, purpose, heard).await?;
        session.facts.check()?;
        Ok(session)
    }

    /// Connects and sets up; the caller looks at the facts.
    pub(crate) async fn unchecked(
        settings: &Settings,
        purpose: Purpose,
        heard: impl FnMut(Notification) + Send + 'static,
    ) -> Result<Self> {
        in_time(settings, connect(settings, purpose, heard)).await
    }

    /// Returns when the connection is gone.
    pub(crate) async fn gone(&mut self) {
        // However its driver ended, it has.
        let _ = (&mut self.driver.0).await;
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.client.is_closed()
    }
}

async fn connect(
    settings: &Settings,
    purpose: Purpose,
    heard: impl FnMut(Notification) + Send + 'static,
) -> Result<Session> {
    let (client, driver) = dial(settings, heard).await?;
    let answered = client.simple_query(&set_up(settings, purpose)).await;
    let facts = Facts::read(&answered.map_err(|error| explain(&error))?)?;
    Ok(Session { client, facts, driver })
}

/// Connects; nothing is set up yet.
pub(crate) async fn dial(
    settings: &Settings,
    mut heard: impl FnMut(Notification) + Send + 'static,
) -> Result<(Client, Driver)> {
    let connected = settings.server.connect(settings.tls.clone()).await;
    let (client, mut connection) = connected.map_err(|error| refused(&error))?;
    let driver = Driver(tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                AsyncMessage::Notification(notification) => heard(notification),
                AsyncMessage::Notice(notice) if is_unreplicated(&notice) => break,
                _ => {}
            }
        }
    }));
    Ok((client, driver))
}

/// True when somebody ended a commit's wait for its synchronous replica. The success that follows is not to be
/// believed: a failover would forget it. Without the connection, its calls may have happened.
fn is_unreplicated(notice: &DbError) -> bool {
    notice.routine() == Some("SyncRepWaitForLSN")
}

/// On a search path, any role could put operators that fit better than the server's own.
fn search_path(settings: &Settings) -> &'static str {
    match settings.server.get_options() {
        Some(options) if options.contains("search_path") => "",
        _ => "SET search_path = pg_catalog, pg_temp;",
    }
}

/// Sets what statements rely on, and asks for the facts.
fn set_up(settings: &Settings, purpose: Purpose) -> String {
    let limit = match purpose {
        Purpose::Calls | Purpose::News => settings.call_timeout,
        Purpose::Chores => settings.chore_timeout(),
    };
    let (lock, limit) = (settings.lock_timeout.as_millis(), limit.as_millis());
    let plans = match purpose {
        // Rows are found by key, in the order of the batch. Plans do not depend on its size, and no
        // statistics of a young table talk the planner into reading all of it.
        Purpose::Calls => {
            "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
             SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off;"
        }
        Purpose::Chores | Purpose::News => "",
    };
    let path = search_path(settings);
    format!(
        "{path} SET client_min_messages = warning; SET lock_timeout = {lock}; SET statement_timeout = {limit};
         SET default_transaction_isolation = 'read committed'; {plans}
         SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
           current_setting('synchronous_commit'), current_setting('fsync'),
           current_setting('server_encoding'), current_setting('server_version_num'),
           current_setting('full_page_writes'), current_setting('synchronous_standby_names')"
    )
}

impl Facts {
    /// The oldest server that is supported.
    const OLDEST: u32 = 130_000;

    fn read(messages: &[SimpleQueryMessage]) -> Result<Self> {
        let row = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let row = row.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "postgres: the server says nothing about itself")
        })?;
        let text = |place: usize| row.get(place).unwrap_or_default().to_owned();
        Ok(Self {
            read_only: text(0) != "f",
            synchronous_commit: text(1),
            fsync: text(2),
            encoding: text(3),
            version: text(4).parse().unwrap_or(0),
            full_page_writes: text(5),
            standbys: text(6),
        })
    }

    fn check(&self) -> Result<()> {
        self.refusals().next().map_or(Ok(()), |why| Err(Error::invalid(format!("postgres: {why}"))))
    }

    /// Why this server is not fit for records.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.read_only, "the server is a replica or read-only; give the URL of the primary"),
            (self.version < Self::OLDEST, "the server is older than PostgreSQL 13; upgrade it"),
            (self.encoding != "UTF8", "the database is not encoded in UTF8; make one that is"),
        ]
        .into_iter()
        .filter_map(|(wrong, why)| wrong.then_some(why))
    }

    /// What makes its promise weaker than it looks.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.synchronous_commit == "off", "synchronous_commit is off: a crash of the server forgets claims and outcomes that it acknowledged; set it to on"),
            (self.fsync == "off", "fsync is off: a power cut may damage everything; set it to on"),
            (self.full_page_writes == "off", "full_page_writes is off: a crash may damage what was acknowledged; set it to on"),
            (!self.standbys.is_empty() && self.is_ahead_of_standbys(), "synchronous_commit does not wait until a synchronous replica has flushed: a failover forgets the last moments; set it to on"),
        ]
        .into_iter()
        .filter_map(|(wrong, why)| wrong.then_some(why))
    }
}

impl Facts {
    fn is_ahead_of_standbys(&self) -> bool {
        matches!(self.synchronous_commit.as_str(), "local" | "remote_write")
    }
}

/// Gives up on a server that accepts connections and then says nothing.
pub(crate) async fn in_time<T>(
    settings: &Settings,
    opening: impl Future<Output = Result<T>>,
) -> Result<T> {
    let opened = semel_remote::timeout_with_grace(settings.connect_timeout, pin!(opening)).await;
    opened.unwrap_or_else(|| Err(Error::new(ErrorKind::Unavailable, SILENT)))
}

const SILENT: &str = "postgres: the server accepts connections but does not answer; is it overloaded, or a pool in front of it too small?";
