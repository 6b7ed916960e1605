//! The settings of a store after validation. All of its connections share them.

use std::{fmt, time::Duration};

use semel_core::{HashSecret, Result};
use semel_remote::RenewalPace;
use tokio::sync::watch;
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{config::PostgresStoreBuilder, names::PgNames, tls, url::PgAddress};

/// Validated settings.
pub(crate) struct PgSettings {
    pub(crate) server: Config,
    pub(crate) tls: MakeRustlsConnect,
    pub(crate) names: PgNames,
    pub(crate) call_timeout: Duration,
    pub(crate) lock_timeout: Duration,
    /// How long a connection may take to become ready. Calls do not wait for that.
    pub(crate) connect_timeout: Duration,
    pub(crate) secret: Option<HashSecret>,
    /// A store that only reads: if no process has set the hash secret yet, this one does not either.
    pub(crate) skip_setup: bool,
    pub(crate) pace: RenewalPace,
    /// Sent when a connection was lost: every worker then checks its own connection before the next batch.
    pub(crate) check: watch::Sender<()>,
}

impl PgSettings {
    pub(crate) fn new(builder: &PostgresStoreBuilder) -> Result<Self> {
        let PgAddress { mut server, trust } = PgAddress::parse(&builder.url)?;
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
            names: PgNames::new(&builder.schema, &builder.table)?,
            call_timeout: builder.call_timeout,
            lock_timeout: builder.lock_timeout,
            connect_timeout,
            secret: builder.secret.clone(),
            skip_setup: builder.skip_setup,
            pace: RenewalPace::default(),
            check: watch::Sender::default(),
        })
    }

    /// How long a statement of maintenance may take; no caller's request waits for it.
    pub(crate) fn maintenance_timeout(&self) -> Duration {
        self.call_timeout.max(Duration::from_secs(60))
    }
}

/// Shorter than the idle timeouts of load balancers and firewalls. If they dropped an idle connection, the next call
/// would wait for its timeout, and the change feed would stop unnoticed.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Gives each host of the URL a share of the time, so that a host that does not answer leaves time for the next one,
/// and for the login.
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

/// Without the server's configuration, which holds the password.
impl fmt::Debug for PgSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgSettings").field("names", &self.names).finish_non_exhaustive()
    }
}
