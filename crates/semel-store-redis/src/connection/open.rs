//! Opens a connection to a server, a Sentinel's primary or a cluster, and checks the servers before it is used.

use std::time::Instant;

use rand::seq::SliceRandom;
use redis::{
    AsyncConnectionConfig, Client,
    cluster::{ClusterClient, ClusterClientBuilder},
    cmd,
    sentinel::{SentinelClientBuilder, SentinelServerType},
};
use semel_core::{Error, ErrorKind, Result};
use tokio::time::timeout;

use super::{RedisConnection, time_of};
use crate::{
    error::{command_error, into_error, login_refused, timed_out},
    settings::RedisSettings,
    url::{RedisTopology, RedisUrl},
};

impl RedisSettings {
    /// Connects, and refuses a server that cannot keep the store's promises.
    pub(crate) async fn open(&self) -> Result<RedisConnection> {
        timeout(self.call_timeout, self.open_unbounded()).await.map_err(|_| timed_out())?
    }

    async fn open_unbounded(&self) -> Result<RedisConnection> {
        let mut connection = self.connect().await?;
        for server in connection.servers().await? {
            server.refuse_unfit(&self.url.topology)?;
        }
        self.check_meta(&mut connection).await?;
        let sent_at = Instant::now();
        self.clock.set(time_of(&connection.query(cmd("TIME")).await?)?, sent_at);
        Ok(connection)
    }

    pub(crate) async fn connect(&self) -> Result<RedisConnection> {
        if self.url.is_tls() {
            use_ring_by_default();
        }
        Ok(match &self.url.topology {
            RedisTopology::Cluster => {
                let connection = self.cluster()?.get_async_connection().await;
                RedisConnection::Cluster(connection.map_err(unreachable)?)
            }
            RedisTopology::Standalone | RedisTopology::Sentinel { .. } => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(self.call_timeout))
                    .set_response_timeout(None);
                let client = self.client().await?;
                let connection = client.get_multiplexed_async_connection_with_config(&config).await;
                RedisConnection::Single(connection.map_err(unreachable)?)
            }
        })
    }

    /// A client of one server: the only one, the primary that the sentinels name, or any server of a cluster.
    pub(crate) async fn client(&self) -> Result<Client> {
        match &self.url.topology {
            RedisTopology::Standalone | RedisTopology::Cluster => {
                let hosts = self.url.connections()?;
                let host = hosts[rand::random_range(0..hosts.len())].clone();
                let client = match self.url.certificates()? {
                    Some(certificates) => Client::build_with_tls(host, certificates),
                    None => Client::open(host),
                };
                client.map_err(unreachable)
            }
            RedisTopology::Sentinel { service } => self.primary_of(service).await,
        }
    }

    async fn primary_of(&self, service: &str) -> Result<Client> {
        let (login, mut addresses) = (self.url.login(), self.url.addresses());
        // The driver tries the sentinels in this order, and waits up to a second for one that does not answer.
        addresses.shuffle(&mut rand::rng());
        let kind = SentinelServerType::Master;
        let mut builder =
            SentinelClientBuilder::new(addresses, service, kind).map_err(unreachable)?;
        builder = builder.set_client_to_redis_db(login.db());
        if let Some(user) = login.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = login.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if self.url.is_tls() {
            builder = builder.set_client_to_redis_tls_mode(redis::TlsMode::Secure);
        }
        if let Some(certificates) = self.url.certificates()? {
            builder = builder.set_client_to_redis_certificates(certificates.clone());
            builder = builder.set_client_to_sentinel_certificates(certificates);
        }
        let mut sentinels = builder.build().map_err(unreachable)?;
        let primary = sentinels.async_get_client().await.map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                "redis: the sentinels name no primary of this service; check the service name and the sentinels",
            )
            .with_source(error)
        })?;
        let info = primary.get_connection_info().clone().set_tcp_settings(RedisUrl::tcp());
        Client::open(info).map_err(unreachable)
    }

    fn cluster(&self) -> Result<ClusterClient> {
        let mut builder = ClusterClientBuilder::new(self.url.connections()?)
            .connection_timeout(self.call_timeout)
            .response_timeout(self.call_timeout)
            .overall_response_timeout(Some(self.call_timeout))
            .tcp_settings(RedisUrl::tcp());
        if self.url.is_tls() {
            builder = builder.tls(redis::TlsMode::Secure);
        }
        if let Some(certificates) = self.url.certificates()? {
            builder = builder.certs(certificates);
        }
        builder.build().map_err(unreachable)
    }
}

fn unreachable(error: redis::RedisError) -> Error {
    if error.code().is_some() {
        return into_error(command_error(error));
    }
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        return login_refused();
    }
    let subject = format!(
        "redis: cannot connect ({}); check that the server runs, and the host, port, login and \
         certificates of the URL",
        error.category()
    );
    Error::new(ErrorKind::Unavailable, subject).with_source(error)
}

/// The driver uses the TLS provider of the process. Sets it to ring, unless the process has chosen one.
fn use_ring_by_default() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
