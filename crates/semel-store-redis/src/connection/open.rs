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

use super::{Link, time_of};
use crate::{
    error::{failed, known, not_let_in, timed_out},
    settings::Plan,
    url::{Kind, Target},
};

impl Plan {
    /// Connects, and refuses a server that cannot keep the promise.
    pub(crate) async fn open(&self) -> Result<Link> {
        timeout(self.call_timeout, self.open_unbounded()).await.map_err(|_| timed_out())?
    }

    async fn open_unbounded(&self) -> Result<Link> {
        let mut link = self.connect().await?;
        for server in link.servers().await? {
            server.refuse_unfit(&self.target.kind)?;
        }
        self.agree(&mut link).await?;
        let asked = Instant::now();
        self.clock.tell(time_of(&link.ask(cmd("TIME")).await?)?, asked);
        Ok(link)
    }

    pub(crate) async fn connect(&self) -> Result<Link> {
        if self.target.is_tls() {
            trust_ring();
        }
        Ok(match &self.target.kind {
            Kind::Cluster => {
                let connection = self.cluster()?.get_async_connection().await;
                Link::Cluster(connection.map_err(unreachable)?)
            }
            Kind::Standalone | Kind::Sentinel { .. } => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(self.call_timeout))
                    .set_response_timeout(None);
                let client = self.client().await?;
                let connection = client.get_multiplexed_async_connection_with_config(&config).await;
                Link::Single(connection.map_err(unreachable)?)
            }
        })
    }

    /// A client of one server: the only one, the primary that the sentinels name, or any of a cluster.
    pub(crate) async fn client(&self) -> Result<Client> {
        match &self.target.kind {
            Kind::Standalone | Kind::Cluster => {
                let hosts = self.target.connections()?;
                let host = hosts[rand::random_range(0..hosts.len())].clone();
                let client = match self.target.certificates()? {
                    Some(certificates) => Client::build_with_tls(host, certificates),
                    None => Client::open(host),
                };
                client.map_err(unreachable)
            }
            Kind::Sentinel { service } => self.primary_of(service).await,
        }
    }

    async fn primary_of(&self, service: &str) -> Result<Client> {
        let (login, mut addresses) = (self.target.login(), self.target.addresses());
        // They are judged in this order, and one that is silent takes up to a second.
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
        if self.target.is_tls() {
            builder = builder.set_client_to_redis_tls_mode(redis::TlsMode::Secure);
        }
        if let Some(certificates) = self.target.certificates()? {
            builder = builder.set_client_to_redis_certificates(certificates.clone());
            builder = builder.set_client_to_sentinel_certificates(certificates);
        }
        let mut sentinels = builder.build().map_err(unreachable)?;
        let primary = sentinels.async_get_client().await.map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                "redis: the sentinels name no primary of this service; check its name and them",
            )
            .with_source(error)
        })?;
        let info = primary.get_connection_info().clone().set_tcp_settings(Target::tcp());
        Client::open(info).map_err(unreachable)
    }

    fn cluster(&self) -> Result<ClusterClient> {
        let mut builder = ClusterClientBuilder::new(self.target.connections()?)
            .connection_timeout(self.call_timeout)
            .response_timeout(self.call_timeout)
            .overall_response_timeout(Some(self.call_timeout))
            .tcp_settings(Target::tcp());
        if self.target.is_tls() {
            builder = builder.tls(redis::TlsMode::Secure);
        }
        if let Some(certificates) = self.target.certificates()? {
            builder = builder.certs(certificates);
        }
        builder.build().map_err(unreachable)
    }
}

fn unreachable(error: redis::RedisError) -> Error {
    if error.code().is_some() {
        return known(failed(error));
    }
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        return not_let_in();
    }
    let subject = format!(
        "redis: cannot connect ({}); check that the server runs, and the host, port, login and \
         certificates of the URL",
        error.category()
    );
    Error::new(ErrorKind::Unavailable, subject).with_source(error)
}

/// The driver takes the process's TLS provider; where nobody chose one, it is ring.
fn trust_ring() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
