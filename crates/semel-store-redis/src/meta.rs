//! Values that must be the same in all processes on one prefix: the hash secret, and the store that a front belongs to.
//! The first process writes them, the others compare.

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
    connection::RedisConnection,
    error::{timed_out, unavailable, unexpected_reply},
    maintenance::RedisMaintenance,
    settings::RedisSettings,
};

/// How often a store compares its hash secret with the one on the server.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);

const OTHER_SECRET: &str = "redis: the other processes on this store hash keys with another secret; give this one \
                            the same --hash-secret-file or SEMEL_HASH_SECRET, or another prefix";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisRole {
    /// It is for records.
    Store,
    /// It is for copies of this store's records. `None` if the store has no identity.
    Front(Option<StoreId>),
}

/// How the value of this process compares with the one on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetaState {
    Equal,
    NotSet,
}

/// True if the last comparison found another hash secret.
#[derive(Debug, Default)]
pub(crate) struct SecretMismatch(AtomicBool);

impl SecretMismatch {
    /// A comparison that failed for another reason changes nothing.
    fn record(&self, checked: &Result<()>) {
        match checked {
            Ok(()) => self.0.store(false, Relaxed),
            Err(error) if error.kind() == ErrorKind::Invalid => {
                if !self.0.swap(true, Relaxed) {
                    tracing::error!(%error, "redis: the store cannot be used");
                }
            }
            Err(_) => {}
        }
    }

    /// Refuses to serve requests: the same operation would have another key in the other processes.
    pub(crate) fn refuse(&self) -> Result<()> {
        match self.0.load(Relaxed) {
            true => Err(unavailable(OTHER_SECRET)),
            false => Ok(()),
        }
    }
}

/// Compares the secret again and again, and writes it if the server was flushed: otherwise a process with another
/// secret could set it.
pub(crate) async fn keep_meta_checked(maintenance: Arc<RedisMaintenance>) {
    loop {
        sleep(CHECK_INTERVAL).await;
        if let Err(error) = maintenance.check_meta().await {
            tracing::debug!(%error, "redis: cannot compare the hash secret");
        }
    }
}

/// A value on the server that must be the same in all processes.
struct MetaValue<'a> {
    key: &'a str,
    /// `None` differs from every value, and is never written.
    ours: Option<&'a [u8]>,
    refusal: &'static str,
}

impl RedisSettings {
    pub(crate) async fn check_meta(&self, connection: &mut RedisConnection) -> Result<()> {
        let checked = self.secret_value().set_or_compare(connection, self.skip_setup).await;
        self.secret_mismatch.record(&checked);
        checked?;
        match self.front_value() {
            Some(table) => table.set_or_compare(connection, self.skip_setup).await,
            None => Ok(()),
        }
    }

    /// Checks every few seconds that the front still belongs to its store: after a flush, another store may have
    /// taken it.
    pub(crate) async fn check_front_owner(&self, connection: &mut RedisConnection) -> Result<()> {
        if !self.clock.is_stale() {
            return Ok(());
        }
        let checking = timeout(self.call_timeout, self.check_meta(connection));
        let checked = checking.await.map_err(|_| timed_out())?;
        checked.inspect_err(|error| tracing::error!(%error, "redis: the front cannot be used"))
    }

    /// Compares without writing, for `semel doctor`.
    pub(crate) async fn meta_findings(&self, connection: &mut RedisConnection) -> Vec<Finding> {
        let finding = |state, equal, not_set| match state {
            Ok(MetaState::Equal) => Finding::good(equal),
            Ok(MetaState::NotSet) => Finding::good(not_set),
            Err(error) => bad(&error),
        };
        let mut findings = vec![finding(
            self.secret_value().state(connection).await,
            "the hash secret is the one the fleet agreed on",
            "no process has settled the hash secret yet",
        )];
        if let Some(table) = self.front_value() {
            findings.push(finding(
                table.state(connection).await,
                "its copies are of this table",
                "it belongs to no table yet; the first process that serves takes it for this table",
            ));
        }
        findings
    }

    fn secret_value(&self) -> MetaValue<'_> {
        MetaValue {
            key: &self.names.secret_check,
            ours: Some(&self.secret_check),
            refusal: OTHER_SECRET,
        }
    }

    fn front_value(&self) -> Option<MetaValue<'_>> {
        let RedisRole::Front(table) = &self.role else { return None };
        Some(MetaValue {
            key: &self.names.front_of,
            ours: table.as_ref().map(|table| table.as_bytes().as_slice()),
            refusal: "redis: this front holds the outcomes of another PostgreSQL table, and would replay them; \
                      give each table a prefix of its own: --front redis://…?prefix=NAME",
        })
    }
}

impl MetaValue<'_> {
    async fn set_or_compare(
        &self,
        connection: &mut RedisConnection,
        skip_setup: bool,
    ) -> Result<()> {
        // A full server refuses every SET, even one that changes nothing, and a connection to it must open.
        let state = self.state(connection).await?;
        let Some(ours) = self.ours.filter(|_| state == MetaState::NotSet && !skip_setup) else {
            return Ok(());
        };
        let mut set = cmd("SET");
        set.arg(self.key).arg(ours).arg("NX").arg("GET");
        self.compare(&connection.query(set).await?).map(drop)
    }

    async fn state(&self, connection: &mut RedisConnection) -> Result<MetaState> {
        let mut get = cmd("GET");
        get.arg(self.key);
        self.compare(&connection.query(get).await?)
    }

    fn compare(&self, settled: &Value) -> Result<MetaState> {
        match settled {
            Value::Nil => Ok(MetaState::NotSet),
            Value::BulkString(settled) if self.ours == Some(settled.as_slice()) => {
                Ok(MetaState::Equal)
            }
            Value::BulkString(_) => Err(Error::invalid(self.refusal)),
            _ => Err(unexpected_reply()),
        }
    }
}
