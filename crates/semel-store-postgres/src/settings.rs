//! What every connection of a store shares.

use std::{fmt, time::Duration};

use semel_core::{HashSecret, Result};
use tokio::sync::watch;
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{config::PostgresStoreBuilder, names::Names, tls, url::Address};

/// Settings that were checked.
pub(crate) struct Settings {
    pub(crate) server: Config,
    pub(crate) tls: MakeRustlsConnect,
    pub(crate) names: Names,
    pub(crate) call_timeout: Duration,
    pub(crate) lock_timeout: Duration,
    /// How long a connection may take to become ready. Calls do not wait for that.
    pub(crate) connect_timeout: Duration,
    pub(crate) secret: Option<HashSecret>,
    /// Where nobody has settled the secret, it stays open.
    pub(crate) look_only: bool,
    /// Told when a connection was lost: the others are checked before they are used again.
    pub(crate) check: watch::Sender<()>,
}

impl Settings {
    pub(crate) fn new(builder: &PostgresStoreBuilder) -> Result<Self> {
        let Address { mut server, trust } = Address::parse(&builder.url)?;
        if server.get_application_name().is_none() {
            server.application_name("semel");
        }
        let connect_timeout = connect_timeout(&mut server, builder.call_timeout);
        if server.get_keepalives_idle() == Config::new().get_keepalives_idle() {
            server.keepalives_idle(KEEPALIVE);
        }
        if server.get_tcp_user_timeout().is_none() {
            server.tcp_user_timeout(builder.call_timeout);
        }
        Ok(Self {
            server,
            tls: tls::connector(&trust)?,
            names: Names::new(&builder.schema, &builder.table)?,
            call_timeout: builder.call_timeout,
            lock_timeout: builder.lock_timeout,
            connect_timeout,
            secret: builder.secret.clone(),
            look_only: builder.look_only,
            check: watch::Sender::default(),
        })
    }

    /// How long a chore may take; nobody waits for one on the way to an answer.
    pub(crate) fn chore_timeout(&self) -> Duration {
        self.call_timeout.max(Duration::from_secs(60))
    }
}

/// Before balancers and firewalls forget a connection that is idle: the first call after a quiet time would
/// wait for nothing, and news would stay away unnoticed.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Gives each host its share of the time, so that one that says nothing leaves some for the next, and the
/// last some for the login.
fn connect_timeout(server: &mut Config, call_timeout: Duration) -> Duration {
    let shares = u32::try_from(server.get_hosts().len()).unwrap_or(u32::MAX).saturating_add(1);
    let all = call_timeout.max(Duration::from_secs(5));
    match server.get_connect_timeout() {
        Some(each) => all.max(each.saturating_mul(shares)),
        None => {
            server.connect_timeout(all / shares);
            all
        }
    }
}

/// Without the server: its settings hold the password.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("names", &self.names).finish_non_exhaustive()
    }
}
