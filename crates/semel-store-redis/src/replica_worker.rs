//! A worker of a front takes batches of requests about replicas, and sends them over its connection.

use std::{sync::Arc, time::Instant};

use redis::cmd;
use semel_core::Result;
use semel_remote::batch::Batches;

use crate::{
    connection::{CommandReply, ReconnectingConnection, RedisConnection, time_of},
    error::{CommandError, mixed_up_replies, unexpected_reply},
    replica_request::{ReplicaReply, ReplicaRequest},
    script::ScriptCall,
    settings::RedisSettings,
    value::UnreadableValue,
};

/// Bytes after which a trip takes no more requests: it has to end within the call timeout.
const TRIP_BYTES: usize = 8 << 20;

/// Serves requests about replicas over one connection.
#[derive(Debug)]
pub(crate) struct ReplicaWorker {
    settings: Arc<RedisSettings>,
    connection: ReconnectingConnection,
}

impl ReplicaWorker {
    pub(crate) async fn open(settings: Arc<RedisSettings>) -> Result<Self> {
        let connection = ReconnectingConnection::open(settings.clone()).await?;
        Ok(Self { settings, connection })
    }

    pub(crate) async fn run(mut self, mut batches: Batches<ReplicaRequest, Result<ReplicaReply>>) {
        let mut rechecks = self.settings.recheck.subscribe();
        loop {
            tokio::select! {
                biased;
                // The sender is part of the settings, and lives as long as this worker.
                Ok(()) = rechecks.changed() => self.connection.check().await,
                batch = batches.gather() => {
                    let Some(batch) = batch else { return };
                    let replies = self.serve(&batch.calls).await;
                    batch.reply.send(replies);
                }
            }
        }
    }

    async fn serve(&mut self, requests: &[ReplicaRequest]) -> Vec<Result<ReplicaReply>> {
        let mut replies = Vec::with_capacity(requests.len());
        while replies.len() < requests.len() {
            let trip = trip(&requests[replies.len()..]);
            match self.send(trip).await {
                Ok(sent) => replies.extend(sent),
                Err(error) => replies.extend(trip.iter().map(|_| Err(error.clone()))),
            }
        }
        replies
    }

    /// Sends requests together. An error means that the connection cannot be used any more.
    async fn send(&mut self, requests: &[ReplicaRequest]) -> Result<Vec<Result<ReplicaReply>>> {
        let settings = self.settings.clone();
        let connection = self.connection.ready().await?;
        let sending = async {
            settings.check_front_owner(connection).await?;
            let mut replies =
                send_commands(connection, &settings, requests, ScriptCall::ByHash).await?;
            // The server did not have the script, and executed nothing.
            for (request, reply) in requests.iter().zip(&mut replies) {
                if matches!(reply, Err(CommandError::NoScript)) {
                    let again = send_commands(
                        connection,
                        &settings,
                        std::slice::from_ref(request),
                        ScriptCall::InFull,
                    )
                    .await?;
                    *reply = again.into_iter().next().ok_or_else(unexpected_reply)?;
                }
            }
            requests
                .iter()
                .zip(replies)
                .map(|(request, reply)| read_reply(&settings, request, reply))
                .collect()
        };
        let replies: Result<Vec<Result<ReplicaReply>>> = sending.await;
        if let Err(error) = &replies {
            self.connection.discard(error);
        }
        replies
    }
}

/// The requests that fit in one trip; at least one.
fn trip(requests: &[ReplicaRequest]) -> &[ReplicaRequest] {
    let mut bytes = 0;
    let fits = requests.iter().take_while(|request| {
        let fits = bytes < TRIP_BYTES;
        bytes += request.bytes();
        fits
    });
    &requests[..fits.count().max(1).min(requests.len())]
}

async fn send_commands(
    connection: &mut RedisConnection,
    settings: &RedisSettings,
    requests: &[ReplicaRequest],
    script_call: ScriptCall,
) -> Result<Vec<CommandReply>> {
    // Never ahead of the server: a replica must not outlive its record.
    let now = settings.clock.earliest();
    let mut commands: Vec<_> =
        requests.iter().map(|request| request.command(&settings.names, script_call, now)).collect();
    let reads_time = settings.clock.is_stale();
    if reads_time {
        commands.push(cmd("TIME"));
    }
    let sent_at = Instant::now();
    let mut replies: Vec<_> = connection.send(commands, settings.call_timeout).await?.collect();
    if reads_time && let Some(Ok(time)) = replies.pop() {
        settings.clock.set(time_of(&time)?, sent_at);
    }
    Ok(replies)
}

/// The reply to one request. The outer error means that the connection cannot be used any more.
fn read_reply(
    settings: &RedisSettings,
    request: &ReplicaRequest,
    reply: CommandReply,
) -> Result<Result<ReplicaReply>> {
    let value = match reply {
        Ok(value) => value,
        Err(CommandError::Command(error)) => return Ok(Err(error)),
        Err(CommandError::Connection(error)) => return Err(error),
        Err(CommandError::NoScript | CommandError::UnexpectedReply) => {
            return Err(unexpected_reply());
        }
    };
    match request.read_reply(value, settings.clock.now()) {
        Ok(reply) => Ok(Ok(reply?)),
        Err(UnreadableValue::Value(error)) => Ok(Err(error)),
        Err(UnreadableValue::OtherKey(error)) => {
            tracing::error!(%error, "redis: a reply holds the record of another key");
            Err(mixed_up_replies())
        }
    }
}
