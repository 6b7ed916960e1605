//! What the server reports about itself when a connection opens: whether it is fit for records.

use semel_core::{Error, ErrorKind, Result};
use tokio_postgres::SimpleQueryMessage;

/// Settings and state of the server.
#[derive(Clone, Debug)]
pub(crate) struct ServerFacts {
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

impl ServerFacts {
    /// The oldest server that is supported.
    const OLDEST: u32 = 130_000;

    pub(super) fn read(messages: &[SimpleQueryMessage]) -> Result<Self> {
        let row = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let row = row.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "postgres: the server did not report its settings")
        })?;
        let text = |column: usize| row.get(column).unwrap_or_default().to_owned();
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

    pub(super) fn check(&self) -> Result<()> {
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

    /// Settings that make the promise weaker than it looks.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.synchronous_commit == "off", "synchronous_commit is off: a crash of the server loses claims and outcomes that it acknowledged; set it to on"),
            (self.fsync == "off", "fsync is off: a power cut may damage everything; set it to on"),
            (self.full_page_writes == "off", "full_page_writes is off: a crash may damage what was acknowledged; set it to on"),
            (!self.standbys.is_empty() && self.is_ahead_of_standbys(), "synchronous_commit does not wait until a synchronous replica has flushed: a failover loses the last commits; set it to on"),
        ]
        .into_iter()
        .filter_map(|(wrong, why)| wrong.then_some(why))
    }

    fn is_ahead_of_standbys(&self) -> bool {
        matches!(self.synchronous_commit.as_str(), "local" | "remote_write")
    }
}
