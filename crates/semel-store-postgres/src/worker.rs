//! A worker: one connection, one batch at a time. While no worker of the group has a connection, calls fail
//! at once.

use std::{pin::pin, sync::Arc, time::Duration};

use semel_core::{Error, Result};
use semel_remote::batch::{Batch, Batches};
use semel_remote::{WorkerGroup, timeout_with_grace};

use crate::{
    backoff::PgBackoff,
    batch::{KeyGroup, RequestBatch},
    change_feed::PgNotifier,
    connection::PreparedConnection,
    error::{disconnected, explain, lost, timed_out},
    fast_path,
    request::{PgReply, PgRequest},
    settings::PgSettings,
    slow_path,
};

/// How long a server may take to answer a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// The batches that a worker takes.
pub(crate) type PgBatches = Batches<PgRequest, Result<PgReply>>;

pub(crate) struct PgWorker {
    pub(crate) settings: Arc<PgSettings>,
    pub(crate) batches: PgBatches,
    pub(crate) notifier: PgNotifier,
    pub(crate) group: WorkerGroup,
}

/// Why a worker stopped serving a connection.
enum ServeEnd {
    /// The queue is closed: there will be no more calls.
    Closed,
    Lost(Error),
}

impl PgWorker {
    /// Connects, then serves batches.
    pub(crate) async fn connect_and_run(mut self) {
        if let Some(connection) = self.connect(PgBackoff::at_once(), None).await {
            self.run(connection).await;
        }
    }

    /// Serves batches, and reconnects, until the queue is closed.
    pub(crate) async fn run(mut self, mut connection: PreparedConnection) {
        loop {
            let connected = self.group.connected();
            let end = self.serve(connection).await;
            drop(connected);
            let ServeEnd::Lost(error) = end else { return };
            tracing::warn!(%error, "postgres: lost a connection");
            match self.connect(PgBackoff::default(), Some(error)).await {
                Some(again) => connection = again,
                None => return,
            }
            tracing::info!("postgres: connected again");
        }
    }

    async fn serve(&mut self, mut connection: PreparedConnection) -> ServeEnd {
        let mut checks = self.settings.check.subscribe();
        loop {
            let batch = tokio::select! {
                biased;
                () = connection.inner.closed() => return ServeEnd::Lost(disconnected(None)),
                // The settings own the sender, and this worker holds the settings: it cannot fail.
                Ok(()) = checks.changed() => match self.check(&connection).await {
                    Ok(()) => continue,
                    Err(error) => return ServeEnd::Lost(error),
                },
                batch = self.batches.take() => batch,
            };
            let Some(batch) = batch else { return ServeEnd::Closed };
            if let Err(error) = self.process(&connection, batch).await {
                // What broke this connection may have broken the others: every worker checks its own.
                self.settings.check.send_replace(());
                return ServeEnd::Lost(error);
            }
        }
    }

    /// Whether the server still answers on this connection.
    async fn check(&self, connection: &PreparedConnection) -> Result<()> {
        let answer = pin!(connection.inner.client.batch_execute(""));
        let limit = self.settings.pace.limit(self.settings.call_timeout.min(CHECK_TIMEOUT));
        let answered = timeout_with_grace(limit, answer).await;
        answered.ok_or_else(timed_out)?.map_err(|error| explain(&error))
    }

    /// Sends a batch to the server and the replies to its callers.
    ///
    /// # Errors
    ///
    /// The connection must not be used again. The callers have their replies all the same.
    async fn process(
        &self,
        connection: &PreparedConnection,
        batch: Batch<PgRequest, Result<PgReply>>,
    ) -> Result<()> {
        let calls = batch.calls.iter().map(|call| &call.request);
        let limit = self.settings.pace.batch_timeout(self.settings.call_timeout, calls);
        let (mut requests, groups) = RequestBatch::new(batch.calls);
        let ran = {
            // Pinned on the stack: a box would cost every batch an allocation of some kilobytes.
            let running = pin!(run_batch(connection, &self.notifier, &mut requests, groups));
            timeout_with_grace(limit, running).await
        };
        let ran = ran.unwrap_or_else(|| Err(timed_out()));
        let missing = ran.as_ref().err().map_or_else(timed_out, lost);
        batch.reply.send(requests.into_replies(&missing));
        ran
    }

    /// A new connection. `None` when the queue is closed.
    async fn connect(
        &mut self,
        mut backoff: PgBackoff,
        mut why: Option<Error>,
    ) -> Option<PreparedConnection> {
        let settings = self.settings.clone();
        loop {
            let pause = settings.pace.limit(backoff.next());
            let mut attempt = pin!(async {
                tokio::time::sleep(pause).await;
                settings.pace.connect(|| PreparedConnection::open(&settings)).await
            });
            loop {
                let (group, mut connected) = (&self.group, self.group.watch());
                let none_connected = group.has_no_connection();
                tokio::select! {
                    biased;
                    connection = &mut attempt => match connection {
                        Ok(connection) => return Some(connection),
                        Err(error) => {
                            match &why {
                                None => tracing::warn!(%error, "postgres: cannot connect; trying again"),
                                Some(_) => tracing::debug!(%error, "postgres: cannot connect"),
                            }
                            why = Some(error);
                            break;
                        }
                    },
                    // Checked before the next batch: another worker may have a connection now, and takes it.
                    _ = connected.changed() => {}
                    // No worker has a connection: calls fail at once instead of waiting for one.
                    batch = self.batches.take_if(|| group.has_no_connection()), if none_connected =>
                        refuse(batch?, why.as_ref()),
                }
            }
        }
    }
}

/// Replies to the requests of a batch: the fast path decides most of them, the slow path the rest.
///
/// # Errors
///
/// The connection must not be used again. A request without a reply may have happened.
async fn run_batch(
    connection: &PreparedConnection,
    notifier: &PgNotifier,
    batch: &mut RequestBatch,
    mut groups: Vec<KeyGroup>,
) -> Result<()> {
    fast_path::run(connection, notifier, batch, &mut groups).await?;
    slow_path::run(connection, notifier, batch, groups).await
}

fn refuse(batch: Batch<PgRequest, Result<PgReply>>, why: Option<&Error>) {
    let error = disconnected(why);
    batch.reply.send(batch.calls.iter().map(|_| Err(error.clone())).collect());
}
