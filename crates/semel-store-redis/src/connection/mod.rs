//! One connection to the servers, checked before it is used.

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

use crate::error::{Trouble, broken, failed, known, odd_reply, refused, timed_out};

pub(crate) use self::reconnect::Line;

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

    pub(crate) async fn ask_all_unbounded(&mut self, command: Cmd) -> Result<Vec<Value>> {
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
impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_cluster() { "Link(cluster)" } else { "Link(single)" })
    }
}
