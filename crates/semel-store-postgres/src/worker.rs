//! A worker: one connection, one batch at a time. While nobody has a connection, calls fail at once.

use std::{pin::pin, sync::Arc, time::Duration};

use semel_core::{Error, Result};
use semel_remote::batch::{Batch, Batches};
use semel_remote::{WorkerGroup, timeout_with_grace};

use crate::{
    backoff::Backoff,
    batch::Work,
    change_feed::Bell,
    connection::prepared::Link,
    error::{disconnected, explain, lost, timed_out},
    request::{Asked, Told},
    settings::Settings,
    slow_path::run,
};

/// How long a server may take to answer a check.
const CHECK: Duration = Duration::from_secs(1);

/// What a worker takes.
pub(crate) type Calls = Batches<Asked, Result<Told>>;

pub(crate) struct Worker {
    pub(crate) settings: Arc<Settings>,
    pub(crate) calls: Calls,
    pub(crate) bell: Bell,
    pub(crate) crew: WorkerGroup,
}

/// Why a connection is not served any more.
enum End {
    /// There will be no more calls.
    Closed,
    Lost(Error),
}

impl Worker {
    /// Works as soon as it has a connection.
    pub(crate) async fn begin(mut self) {
        if let Some(link) = self.connect(Backoff::at_once(), None).await {
            self.run(link).await;
        }
    }

    /// Works until there can be no more calls.
    pub(crate) async fn run(mut self, mut link: Link) {
        loop {
            let connected = self.crew.connected();
            let end = self.serve(link).await;
            drop(connected);
            let End::Lost(error) = end else { return };
            tracing::warn!(%error, "postgres: lost a connection");
            match self.connect(Backoff::default(), Some(error)).await {
                Some(again) => link = again,
                None => return,
            }
            tracing::info!("postgres: connected again");
        }
    }

    async fn serve(&mut self, mut link: Link) -> End {
        let mut checks = self.settings.check.subscribe();
        loop {
            let batch = tokio::select! {
                biased;
                () = link.session.gone() => return End::Lost(disconnected(None)),
                // The settings, which are the sender, live as long as this.
                Ok(()) = checks.changed() => match self.check(&link).await {
                    Ok(()) => continue,
                    Err(error) => return End::Lost(error),
                },
                batch = self.calls.take() => batch,
            };
            let Some(batch) = batch else { return End::Closed };
            if let Err(error) = self.answer(&link, batch).await {
                // Whatever happened to this connection may have happened to the others.
                self.settings.check.send_replace(());
                return End::Lost(error);
            }
        }
    }

    /// Whether the server still answers on this connection.
    async fn check(&self, link: &Link) -> Result<()> {
        let answer = pin!(link.session.client.batch_execute(""));
        let answered = timeout_with_grace(self.settings.call_timeout.min(CHECK), answer).await;
        answered.ok_or_else(timed_out)?.map_err(|error| explain(&error))
    }

    /// # Errors
    ///
    /// The connection is not to be used again. The batch is answered all the same.
    async fn answer(&self, link: &Link, batch: Batch<Asked, Result<Told>>) -> Result<()> {
        let (mut work, groups) = Work::new(batch.calls);
        let ran = {
            // In place: a box would cost every batch an allocation of some kilobytes.
            let running = pin!(run(link, &self.bell, &mut work, groups));
            timeout_with_grace(self.settings.call_timeout, running).await
        };
        let ran = ran.unwrap_or_else(|| Err(timed_out()));
        let missing = ran.as_ref().err().map_or_else(timed_out, lost);
        batch.reply.send(work.into_answers(&missing));
        ran
    }

    /// A new connection. `None` when there can be no more calls.
    async fn connect(&mut self, mut backoff: Backoff, mut why: Option<Error>) -> Option<Link> {
        let settings = self.settings.clone();
        loop {
            let pause = backoff.next();
            let mut attempt = pin!(async {
                tokio::time::sleep(pause).await;
                Link::open(&settings).await
            });
            loop {
                let (crew, mut connected) = (&self.crew, self.crew.watch());
                let nobody = crew.has_no_connection();
                tokio::select! {
                    biased;
                    link = &mut attempt => match link {
                        Ok(link) => return Some(link),
                        Err(error) => {
                            match &why {
                                None => tracing::warn!(%error, "postgres: cannot connect; trying on"),
                                Some(_) => tracing::debug!(%error, "postgres: cannot connect"),
                            }
                            why = Some(error);
                            break;
                        }
                    },
                    // Before the next call: somebody may have a connection by now, and takes it.
                    _ = connected.changed() => {}
                    // If nobody has, calls are told so.
                    batch = self.calls.take_if(|| crew.has_no_connection()), if nobody => refuse(batch?, why.as_ref()),
                }
            }
        }
    }
}

fn refuse(batch: Batch<Asked, Result<Told>>, why: Option<&Error>) {
    let error = disconnected(why);
    batch.reply.send(batch.calls.iter().map(|_| Err(error.clone())).collect());
}
