//! A worker takes batches of requests from the queue, and sends them over its connection in as few round trips as
//! possible.

use std::sync::Arc;

use semel_core::{
    Error, Result,
    steps::{StoreReply, StoreRequest},
};
use semel_remote::{
    ConnectedWorker, WorkerGroup,
    batch::{Batch, Batches},
};
use tokio::sync::watch;

use crate::{
    connection::ReconnectingConnection,
    error::{is_closed, unavailable},
    request::RedisRequest,
    round_trip::{PendingRequest, RoundTrip},
    settings::RedisSettings,
};

/// Most batches that a worker serves together.
const MAX_BATCHES: usize = 4;

type RedisBatches = Batches<StoreRequest, Result<StoreReply>>;

/// Serves requests over one connection.
#[derive(Debug)]
pub(crate) struct RedisWorker {
    settings: Arc<RedisSettings>,
    connection: ReconnectingConnection,
    group: WorkerGroup,
    /// Counts this worker in its group while it has a connection.
    connected: Option<ConnectedWorker>,
    /// Notified when another connection of the store was lost.
    rechecks: watch::Receiver<()>,
}

impl RedisWorker {
    pub(crate) async fn open(settings: Arc<RedisSettings>, group: &WorkerGroup) -> Result<Self> {
        let (rechecks, connection) =
            (settings.recheck.subscribe(), ReconnectingConnection::open(settings.clone()).await?);
        Ok(Self {
            settings,
            connection,
            group: group.clone(),
            connected: Some(group.connected()),
            rechecks,
        })
    }

    /// A worker whose connection is opened in the background, on this runtime.
    pub(crate) fn open_in_background(settings: Arc<RedisSettings>, group: &WorkerGroup) -> Self {
        let (rechecks, connection) = (
            settings.recheck.subscribe(),
            ReconnectingConnection::open_in_background(settings.clone()),
        );
        Self { settings, connection, group: group.clone(), connected: None, rechecks }
    }

    pub(crate) async fn run(mut self, mut batches: RedisBatches) {
        while let Some(batch) = self.next(&mut batches).await {
            let mut taken = vec![batch];
            while taken.len() < MAX_BATCHES
                && let Some(batch) = batches.take_share()
            {
                taken.push(batch);
            }
            self.serve_all(taken).await;
        }
    }

    /// The next batch. A worker without a connection leaves batches to the workers that have one. If no worker has
    /// one, it takes the batch, and the requests fail.
    async fn next(
        &mut self,
        batches: &mut RedisBatches,
    ) -> Option<Batch<StoreRequest, Result<StoreReply>>> {
        loop {
            while !self.connection.is_open() {
                let (group, mut connected) = (&self.group, self.group.watch());
                let none_connected = group.has_no_connection();
                tokio::select! {
                    biased;
                    () = self.connection.wait_until_open() => self.connected = Some(group.connected()),
                    // Before the next batch: another worker may have a connection by now.
                    _ = connected.changed() => {}
                    batch = batches.take_if(|| group.has_no_connection()), if none_connected => return batch,
                }
            }
            tokio::select! {
                biased;
                // The sender is part of the settings, and lives as long as this worker.
                Ok(()) = self.rechecks.changed() => self.check().await,
                batch = batches.gather() => return batch,
            }
        }
    }

    async fn check(&mut self) {
        self.connection.check().await;
        if !self.connection.is_open() {
            self.connected = None;
        }
    }

    /// Serves several batches together, and replies to each.
    async fn serve_all(&mut self, batches: Vec<Batch<StoreRequest, Result<StoreReply>>>) {
        let now = self.settings.clock.earliest();
        let pending = |request| PendingRequest {
            request: RedisRequest::new(request, now, &self.settings.claims),
            reply: None,
        };
        let mut requests = Vec::with_capacity(batches.iter().map(|batch| batch.calls.len()).sum());
        let mut replies = Vec::with_capacity(batches.len());
        for batch in batches {
            replies.push((batch.calls.len(), batch.reply));
            requests.extend(batch.calls.into_iter().map(pending));
        }
        let unserved = self.serve(&mut requests).await;
        let unserved =
            unserved.unwrap_or_else(|| unavailable("redis: the request was not served; try again"));
        let mut answers = requests
            .into_iter()
            .map(|pending| pending.reply.unwrap_or_else(|| Err(unserved.clone())));
        for (count, reply) in replies {
            reply.send(answers.by_ref().take(count).collect());
        }
    }

    /// Returns why some requests were not served. If the connection was closed, repeatable requests are sent
    /// once more on a new connection: a closed connection does not mean that the server is down.
    async fn serve(&mut self, requests: &mut [PendingRequest]) -> Option<Error> {
        let error = self.serve_once(requests).await?;
        if !is_closed(&error) {
            return Some(error);
        }
        let now = self.settings.clock.earliest();
        let mut is_any_left = false;
        for pending in requests.iter_mut().filter(|pending| pending.reply.is_none()) {
            match pending.request.is_repeatable() {
                true => pending.request.repeat(now, &self.settings.claims),
                false => pending.reply = Some(Err(error.clone())),
            }
            is_any_left |= pending.reply.is_none();
        }
        if is_any_left { self.serve_once(requests).await } else { Some(error) }
    }

    async fn serve_once(&mut self, requests: &mut [PendingRequest]) -> Option<Error> {
        let connection = match self.connection.ready().await {
            Ok(connection) => connection,
            Err(error) => return Some(error),
        };
        // The connection may have been opened just now.
        self.connected.get_or_insert_with(|| self.group.connected());
        let mut trip = RoundTrip { settings: &self.settings, connection };
        let error = match self.settings.secret_mismatch.refuse() {
            Ok(()) => trip.serve(requests).await.err()?,
            Err(error) => error,
        };
        self.connected = None;
        self.connection.discard(&error);
        // The next connection is opened after the loss that asks for a check.
        self.rechecks.mark_unchanged();
        Some(error)
    }
}
