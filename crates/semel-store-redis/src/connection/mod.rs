//! One connection to a server or a cluster: `open.rs` connects and checks the servers, this file sends commands,
//! `reconnect.rs` replaces a lost connection.

mod open;
mod reconnect;

use std::{pin::pin, time::Duration, vec};

use futures_util::future::join_all;
use redis::{
    Cmd, Pipeline, RedisResult, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo},
    cmd,
};
use semel_core::{Result, Timestamp};
use semel_remote::timeout_with_grace;
use tokio::time::timeout;

use crate::error::{
    CommandError, command_error, connection_lost, into_error, server_error, timed_out,
    unexpected_reply,
};

pub(crate) use self::reconnect::ReconnectingConnection;

/// A connection to one server, or to all of a cluster.
#[derive(Clone)]
pub(crate) enum RedisConnection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// The reply to one command.
pub(crate) type CommandReply = std::result::Result<Value, CommandError>;

/// The replies to several commands. They are converted one by one, without another list.
#[derive(Debug)]
pub(crate) enum CommandReplies {
    Single(vec::IntoIter<Value>),
    Cluster(vec::IntoIter<RedisResult<Value>>),
}

impl Iterator for CommandReplies {
    type Item = CommandReply;

    fn next(&mut self) -> Option<CommandReply> {
        Some(match self {
            Self::Single(values) => into_reply(values.next()?),
            Self::Cluster(replies) => replies.next()?.map_err(command_error).and_then(into_reply),
        })
    }
}

impl RedisConnection {
    /// Sends commands together. Each server executes them in this order, and each command has its own reply.
    ///
    /// # Errors
    ///
    /// The connection cannot be used any more; any of the commands may have been executed.
    pub(crate) async fn send(
        &mut self,
        commands: Vec<Cmd>,
        within: Duration,
    ) -> Result<CommandReplies> {
        if commands.is_empty() {
            return Ok(CommandReplies::Single(Vec::new().into_iter()));
        }
        timeout_with_grace(within, pin!(self.send_unbounded(commands)))
            .await
            .ok_or_else(timed_out)?
    }

    async fn send_unbounded(&mut self, commands: Vec<Cmd>) -> Result<CommandReplies> {
        match self {
            Self::Single(connection) => {
                let count = commands.len();
                let mut pipeline = Pipeline::with_capacity(count);
                for command in commands {
                    pipeline.add_command(command);
                }
                let replies = connection.send_packed_commands(&pipeline, 0, count).await;
                Ok(CommandReplies::Single(replies.map_err(connection_lost)?.into_iter()))
            }
            Self::Cluster(connection) => {
                let send = |command: Cmd| {
                    let mut connection = connection.clone();
                    async move { connection.req_packed_command(&command).await }
                };
                let replies = join_all(commands.into_iter().map(send)).await;
                Ok(CommandReplies::Cluster(replies.into_iter()))
            }
        }
    }

    /// Sends one command. Any failure is an error.
    pub(crate) async fn query(&mut self, command: Cmd) -> Result<Value> {
        let reply = match self {
            Self::Single(connection) => connection.req_packed_command(&command).await,
            Self::Cluster(connection) => connection.req_packed_command(&command).await,
        };
        into_reply(reply.map_err(|error| into_error(command_error(error)))?).map_err(into_error)
    }

    /// Sends one command to every primary.
    pub(crate) async fn query_primaries(
        &mut self,
        command: Cmd,
        within: Duration,
    ) -> Result<Vec<Value>> {
        timeout(within, self.query_primaries_unbounded(command)).await.map_err(|_| timed_out())?
    }

    pub(crate) async fn query_primaries_unbounded(&mut self, command: Cmd) -> Result<Vec<Value>> {
        let Self::Cluster(connection) = self else { return Ok(vec![self.query(command).await?]) };
        let replies = route_to_primaries(connection, command).await?;
        Ok(replies.into_iter().map(|(_, reply)| reply).collect())
    }

    /// The addresses of the primaries, for [`RedisConnection::query_primary`].
    pub(crate) async fn primaries(&mut self, within: Duration) -> Result<Vec<PrimaryAddress>> {
        let Self::Cluster(connection) = self else { return Ok(vec![PrimaryAddress::Only]) };
        let replies = timeout(within, route_to_primaries(connection, cmd("DBSIZE"))).await;
        let replies = replies.map_err(|_| timed_out())??;
        replies.into_iter().map(|(address, _)| PrimaryAddress::parse(&text_of(&address)?)).collect()
    }

    /// Sends one command to one of the [`RedisConnection::primaries`].
    pub(crate) async fn query_primary(
        &mut self,
        address: &PrimaryAddress,
        command: Cmd,
        within: Duration,
    ) -> Result<Value> {
        let (Self::Cluster(connection), PrimaryAddress::Of { host, port }) = (&mut *self, address)
        else {
            return timeout(within, self.query(command)).await.map_err(|_| timed_out())?;
        };
        let (host, port) = (host.clone(), *port);
        let node = RoutingInfo::SingleNode(SingleNodeRoutingInfo::ByAddress { host, port });
        let reply = timeout(within, connection.route_command(command, node)).await;
        let reply = reply.map_err(|_| timed_out())?;
        into_reply(reply.map_err(|error| into_error(command_error(error)))?).map_err(into_error)
    }

    /// Checks that the server still answers. The cluster client of the driver checks its connections itself.
    pub(crate) async fn check(&mut self, within: Duration) -> Result<()> {
        match self {
            Self::Single(_) => self.send(vec![cmd("PING")], within).await.map(drop),
            Self::Cluster(_) => Ok(()),
        }
    }

    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}

async fn route_to_primaries(
    connection: &mut ClusterConnection,
    command: Cmd,
) -> Result<Vec<(Value, Value)>> {
    let primaries = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
    let reply = connection.route_command(command, primaries).await;
    match reply.map_err(|error| into_error(command_error(error)))? {
        Value::Map(replies) => Ok(replies),
        _ => Err(unexpected_reply()),
    }
}

/// Where a primary is; `Only` without a cluster.
#[derive(Clone, Debug)]
pub(crate) enum PrimaryAddress {
    Only,
    Of { host: String, port: u16 },
}

impl PrimaryAddress {
    fn parse(text: &str) -> Result<Self> {
        let (host, port) = text.rsplit_once(':').ok_or_else(unexpected_reply)?;
        let port = port.parse().map_err(|_| unexpected_reply())?;
        Ok(Self::Of { host: host.to_owned(), port })
    }
}

/// Reads the reply to `TIME`.
pub(crate) fn time_of(value: &Value) -> Result<Timestamp> {
    let Value::Array(parts) = value else { return Err(unexpected_reply()) };
    let number = |at: usize| -> Result<u64> {
        let text = text_of(parts.get(at).ok_or_else(unexpected_reply)?)?;
        text.parse().map_err(|_| unexpected_reply())
    };
    Ok(Timestamp::from_millis(number(0)? * 1000 + number(1)? / 1000))
}

pub(crate) fn text_of(value: &Value) -> Result<String> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text.clone()),
        _ => Err(unexpected_reply()),
    }
}

fn into_reply(value: Value) -> CommandReply {
    match value {
        Value::ServerError(error) => Err(server_error(&error)),
        value => Ok(value),
    }
}

/// Splits a reply that is a list of `count` replies.
pub(crate) fn split_array(reply: CommandReply, count: usize) -> Vec<CommandReply> {
    match reply {
        Ok(Value::Array(replies)) if replies.len() == count => {
            replies.into_iter().map(into_reply).collect()
        }
        Ok(_) => vec![Err(CommandError::UnexpectedReply); count],
        Err(error) => vec![Err(error); count],
    }
}

impl std::fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_cluster() {
            "RedisConnection(cluster)"
        } else {
            "RedisConnection(single)"
        })
    }
}
