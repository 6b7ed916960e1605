//! One connection to the servers, checked before it is used.

mod reconnect;

use std::{
    pin::pin,
    time::{Duration, Instant},
    vec,
};

use futures_util::future::join_all;
use rand::seq::SliceRandom;
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisResult, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo},
    cmd,
    sentinel::{SentinelClientBuilder, SentinelServerType},
};
use semel_core::{Error, ErrorKind, Finding, Result, Timestamp};
use semel_remote::timeout_with_grace;
use tokio::{sync::watch, time::timeout};

use crate::{
    check::Server,
    clock::ServerClock,
    error::{Trouble, broken, failed, known, not_let_in, odd_reply, refused, timed_out},
    granted_claims::Claims,
    meta::{Odds, Role},
    names::Names,
    url::{Kind, Target},
};

pub(crate) use self::reconnect::Line;

/// Everything a connection needs to know.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) names: Names,
    /// Tells the hash secrets of processes apart.
    pub(crate) secret_check: [u8; 32],
    pub(crate) odds: Odds,
    pub(crate) role: Role,
    /// Settles nothing for others.
    pub(crate) look_only: bool,
    pub(crate) call_timeout: Duration,
    pub(crate) clock: ServerClock,
    pub(crate) claims: Claims,
    /// Told when a connection was lost: the others are checked before they are used again.
    pub(crate) check: watch::Sender<()>,
}

/// A connection to one server, or to all of a cluster.
#[derive(Clone)]
pub(crate) enum Link {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// What one command was answered with.
pub(crate) type Reply = std::result::Result<Value, Trouble>;

/// What several were, as they came: there are many, and each is looked at once.
#[derive(Debug)]
pub(crate) enum Replies {
    Single(vec::IntoIter<Value>),
    Cluster(vec::IntoIter<RedisResult<Value>>),
}

impl Iterator for Replies {
    type Item = Reply;

    fn next(&mut self) -> Option<Reply> {
        Some(match self {
            Self::Single(values) => checked(values.next()?),
            Self::Cluster(replies) => replies.next()?.map_err(failed).and_then(checked),
        })
    }
}

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

    async fn connect(&self) -> Result<Link> {
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

    /// What an operator should know about the servers. Changes nothing.
    pub(crate) async fn findings(&self) -> Vec<Finding> {
        let looked = timeout(self.call_timeout, self.look()).await;
        looked.unwrap_or_else(|_| Err(timed_out())).unwrap_or_else(|error| vec![bad(&error)])
    }

    async fn look(&self) -> Result<Vec<Finding>> {
        let mut link = self.connect().await?;
        let (mut findings, appendfsync) = (Vec::new(), link.appendfsync().await);
        for server in link.servers().await? {
            match server.refuse_unfit(&self.target.kind) {
                Ok(()) => findings.extend(server.findings(appendfsync.as_deref(), self.role)),
                Err(error) => findings.push(bad(&error)),
            }
        }
        findings.extend(self.agreements(&mut link).await);
        Ok(findings)
    }
}

/// What is wrong and what helps are told in one sentence, divided by a semicolon.
pub(crate) fn bad(error: &Error) -> Finding {
    let text = error.to_string();
    let (what, fix) = text.split_once("; ").unwrap_or((&text, "see docs/stores/redis.md"));
    Finding::bad(what, fix)
}

impl Link {
    /// Sends commands at once. They happen in this order on each server, and each has its own reply.
    ///
    /// # Errors
    ///
    /// The connection is of no use any more; any of the commands may have happened.
    pub(crate) async fn send(&mut self, commands: Vec<Cmd>, within: Duration) -> Result<Replies> {
        if commands.is_empty() {
            return Ok(Replies::Single(Vec::new().into_iter()));
        }
        timeout_with_grace(within, pin!(self.send_unbounded(commands)))
            .await
            .ok_or_else(timed_out)?
    }

    async fn send_unbounded(&mut self, commands: Vec<Cmd>) -> Result<Replies> {
        match self {
            Self::Single(connection) => {
                let count = commands.len();
                let mut pipeline = Pipeline::with_capacity(count);
                for command in commands {
                    pipeline.add_command(command);
                }
                let replies = connection.send_packed_commands(&pipeline, 0, count).await;
                Ok(Replies::Single(replies.map_err(broken)?.into_iter()))
            }
            Self::Cluster(connection) => {
                let ask = |command: Cmd| {
                    let mut connection = connection.clone();
                    async move { connection.req_packed_command(&command).await }
                };
                let replies = join_all(commands.into_iter().map(ask)).await;
                Ok(Replies::Cluster(replies.into_iter()))
            }
        }
    }

    /// One command whose failure is the connection's.
    pub(crate) async fn ask(&mut self, command: Cmd) -> Result<Value> {
        let reply = match self {
            Self::Single(connection) => connection.req_packed_command(&command).await,
            Self::Cluster(connection) => connection.req_packed_command(&command).await,
        };
        checked(reply.map_err(|error| known(failed(error)))?).map_err(known)
    }

    /// One command to every primary.
    pub(crate) async fn ask_all(&mut self, command: Cmd, within: Duration) -> Result<Vec<Value>> {
        timeout(within, self.ask_all_unbounded(command)).await.map_err(|_| timed_out())?
    }

    async fn ask_all_unbounded(&mut self, command: Cmd) -> Result<Vec<Value>> {
        let Self::Cluster(connection) = self else { return Ok(vec![self.ask(command).await?]) };
        let replies = ask_primaries(connection, command).await?;
        Ok(replies.into_iter().map(|(_, reply)| reply).collect())
    }

    /// The primaries, for [`Link::ask_at`].
    pub(crate) async fn primaries(&mut self, within: Duration) -> Result<Vec<Address>> {
        let Self::Cluster(connection) = self else { return Ok(vec![Address::Only]) };
        let asked = timeout(within, ask_primaries(connection, cmd("DBSIZE"))).await;
        let replies = asked.map_err(|_| timed_out())??;
        replies.into_iter().map(|(address, _)| Address::parse(&text_of(&address)?)).collect()
    }

    /// One command to one of [`Link::primaries`].
    pub(crate) async fn ask_at(
        &mut self,
        address: &Address,
        command: Cmd,
        within: Duration,
    ) -> Result<Value> {
        let (Self::Cluster(connection), Address::Of { host, port }) = (&mut *self, address) else {
            return timeout(within, self.ask(command)).await.map_err(|_| timed_out())?;
        };
        let (host, port) = (host.clone(), *port);
        let node = RoutingInfo::SingleNode(SingleNodeRoutingInfo::ByAddress { host, port });
        let asked = timeout(within, connection.route_command(command, node)).await;
        let reply = asked.map_err(|_| timed_out())?;
        checked(reply.map_err(|error| known(failed(error)))?).map_err(known)
    }

    /// Whether the server still answers on this connection. A cluster's client sees to its connections itself.
    pub(crate) async fn check(&mut self, within: Duration) -> Result<()> {
        match self {
            Self::Single(_) => self.send(vec![cmd("PING")], within).await.map(drop),
            Self::Cluster(_) => Ok(()),
        }
    }

    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// What every primary says about itself.
    async fn servers(&mut self) -> Result<Vec<Server>> {
        let mut info = cmd("INFO");
        // Named, since a cluster answers a bare INFO with the same.
        info.arg("everything");
        let texts = self.ask_all_unbounded(info).await?;
        texts.iter().map(|text| Server::parse(&text_of(text)?)).collect()
    }

    /// The laxest `appendfsync` of the primaries, if this user may ask.
    async fn appendfsync(&mut self) -> Option<String> {
        let mut get = cmd("CONFIG");
        get.arg("GET").arg("appendfsync").arg("no-appendfsync-on-rewrite");
        let replies = self.ask_all_unbounded(get).await.ok()?;
        let settings: Vec<_> = replies.iter().map(flushed).collect::<Option<_>>()?;
        settings.into_iter().max_by_key(|it| it != "always")
    }
}

/// When a server with these settings flushes what it wrote.
fn flushed(reply: &Value) -> Option<String> {
    let Value::Array(words) = reply else { return None };
    let words = words.iter().map(text_of).collect::<Result<Vec<_>>>().ok()?;
    let setting = |name: &str| words.chunks(2).find(|pair| pair[0] == name)?.get(1);
    let appendfsync = setting("appendfsync")?;
    Some(match setting("no-appendfsync-on-rewrite").map(String::as_str) {
        Some("yes") => {
            format!("{appendfsync}, but not during a rewrite (no-appendfsync-on-rewrite yes)")
        }
        _ => appendfsync.clone(),
    })
}

async fn ask_primaries(
    connection: &mut ClusterConnection,
    command: Cmd,
) -> Result<Vec<(Value, Value)>> {
    let primaries = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
    let reply = connection.route_command(command, primaries).await;
    match reply.map_err(|error| known(failed(error)))? {
        Value::Map(replies) => Ok(replies),
        _ => Err(odd_reply()),
    }
}

/// One server.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Only,
    Of { host: String, port: u16 },
}

impl Address {
    fn parse(text: &str) -> Result<Self> {
        let (host, port) = text.rsplit_once(':').ok_or_else(odd_reply)?;
        let port = port.parse().map_err(|_| odd_reply())?;
        Ok(Self::Of { host: host.to_owned(), port })
    }
}

/// What `TIME` answers.
pub(crate) fn time_of(value: &Value) -> Result<Timestamp> {
    let Value::Array(parts) = value else { return Err(odd_reply()) };
    let number = |at: usize| -> Result<u64> {
        let text = text_of(parts.get(at).ok_or_else(odd_reply)?)?;
        text.parse().map_err(|_| odd_reply())
    };
    Ok(Timestamp::from_millis(number(0)? * 1000 + number(1)? / 1000))
}

pub(crate) fn text_of(value: &Value) -> Result<String> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text.clone()),
        _ => Err(odd_reply()),
    }
}

fn checked(value: Value) -> Reply {
    match value {
        Value::ServerError(error) => Err(refused(&error)),
        value => Ok(value),
    }
}

/// The replies in one that is a list of so many.
pub(crate) fn each(reply: Reply, count: usize) -> Vec<Reply> {
    match reply {
        Ok(Value::Array(replies)) if replies.len() == count => {
            replies.into_iter().map(checked).collect()
        }
        Ok(_) => vec![Err(Trouble::Odd); count],
        Err(trouble) => vec![Err(trouble); count],
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

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_cluster() { "Link(cluster)" } else { "Link(single)" })
    }
}
