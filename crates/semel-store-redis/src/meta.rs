//! What all processes on one prefix have to agree on: the first writes it down, the others must have the same.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use redis::{Value, cmd};
use semel_core::{Error, ErrorKind, Finding, Result, StoreId};
use tokio::time::{sleep, timeout};

use crate::{
    check::bad,
    connection::Link,
    error::{odd_reply, timed_out, unavailable},
    maintenance::Chores,
    settings::Plan,
};

/// How often a store sees to it that the others still have its hash secret.
const BEAT: Duration = Duration::from_secs(3);

const OTHER_SECRET: &str = "redis: the other processes on this store hash keys with another secret; give this one \
                            the same --hash-secret-file or SEMEL_HASH_SECRET, or another prefix";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Records, which are decided here.
    Store,
    /// Copies of this store's records. `None`: nobody has told it from others yet.
    Front(Option<StoreId>),
}

/// How what this process has stands to what the others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Agreed,
    NotSettled,
}

/// Whether the others were last seen with another hash secret.
#[derive(Debug, Default)]
pub(crate) struct Odds(AtomicBool);

impl Odds {
    /// What could not be asked changes nothing.
    fn learn(&self, settled: &Result<()>) {
        match settled {
            Ok(()) => self.0.store(false, Relaxed),
            Err(error) if error.kind() == ErrorKind::Invalid => {
                if !self.0.swap(true, Relaxed) {
                    tracing::error!(%error, "redis: the store cannot be used");
                }
            }
            Err(_) => {}
        }
    }

    /// Refuses to serve: the same operation would have another key here than there.
    pub(crate) fn refuse(&self) -> Result<()> {
        match self.0.load(Relaxed) {
            true => Err(unavailable(OTHER_SECRET)),
            false => Ok(()),
        }
    }
}

/// Settles the secret again where it is gone, for ever: a server that was flushed is open to any.
pub(crate) async fn keep_agreed(chores: Arc<Chores>) {
    loop {
        sleep(BEAT).await;
        if let Err(error) = chores.agree().await {
            tracing::debug!(%error, "redis: the hash secret was not compared");
        }
    }
}

/// One thing to agree on.
struct Term<'a> {
    key: &'a str,
    /// `None` differs from whatever is settled, and settles nothing.
    ours: Option<&'a [u8]>,
    refusal: &'static str,
}

impl Plan {
    pub(crate) async fn agree(&self, link: &mut Link) -> Result<()> {
        let settled = self.secret().settle(link, self.look_only).await;
        self.odds.learn(&settled);
        settled?;
        match self.table() {
            Some(table) => table.settle(link, self.look_only).await,
            None => Ok(()),
        }
    }

    /// Sees to it, every few seconds, that a front is still its store's: a server that was flushed may be
    /// somebody else's by now.
    pub(crate) async fn is_still_ours(&self, link: &mut Link) -> Result<()> {
        if !self.clock.is_stale() {
            return Ok(());
        }
        let settling = timeout(self.call_timeout, self.agree(link));
        let settled = settling.await.map_err(|_| timed_out())?;
        settled.inspect_err(|error| tracing::error!(%error, "redis: the front cannot be used"))
    }

    /// Looks only.
    pub(crate) async fn agreements(&self, link: &mut Link) -> Vec<Finding> {
        let told = |standing, agreed, open| match standing {
            Ok(Standing::Agreed) => Finding::good(agreed),
            Ok(Standing::NotSettled) => Finding::good(open),
            Err(error) => bad(&error),
        };
        let mut findings = vec![told(
            self.secret().standing(link).await,
            "the hash secret is the one the fleet agreed on",
            "no process has settled the hash secret yet",
        )];
        if let Some(table) = self.table() {
            findings.push(told(
                table.standing(link).await,
                "its copies are of this table",
                "it is nobody's yet; the first process that serves takes it for this table",
            ));
        }
        findings
    }

    fn secret(&self) -> Term<'_> {
        Term {
            key: &self.names.secret_check,
            ours: Some(&self.secret_check),
            refusal: OTHER_SECRET,
        }
    }

    fn table(&self) -> Option<Term<'_>> {
        let Role::Front(table) = &self.role else { return None };
        Some(Term {
            key: &self.names.front_of,
            ours: table.as_ref().map(|table| table.as_bytes().as_slice()),
            refusal: "redis: this front holds the outcomes of another PostgreSQL table, and would replay them; \
                      give each table a prefix of its own: --front redis://…?prefix=NAME",
        })
    }
}

impl Term<'_> {
    async fn settle(&self, link: &mut Link, look_only: bool) -> Result<()> {
        // A full server takes no SET, not even one that changes nothing, and must be connected to.
        let standing = self.standing(link).await?;
        let Some(ours) = self.ours.filter(|_| standing == Standing::NotSettled && !look_only)
        else {
            return Ok(());
        };
        let mut first = cmd("SET");
        first.arg(self.key).arg(ours).arg("NX").arg("GET");
        self.compared(&link.ask(first).await?).map(drop)
    }

    async fn standing(&self, link: &mut Link) -> Result<Standing> {
        let mut get = cmd("GET");
        get.arg(self.key);
        self.compared(&link.ask(get).await?)
    }

    fn compared(&self, settled: &Value) -> Result<Standing> {
        match settled {
            Value::Nil => Ok(Standing::NotSettled),
            Value::BulkString(settled) if self.ours == Some(settled.as_slice()) => {
                Ok(Standing::Agreed)
            }
            Value::BulkString(_) => Err(Error::invalid(self.refusal)),
            _ => Err(odd_reply()),
        }
    }
}
