//! A worker: one connection, one batch at a time. While nobody has a connection, calls fail at once.

use std::{pin::pin, sync::Arc};

use semel_core::{
    Error, Result,
    batch::{Batch, Batches},
};
use tokio::{sync::watch, time::timeout};

use crate::{
    backoff::Backoff,
    bell::Bell,
    call::{Asked, Told},
    error::{disconnected, lost, timed_out},
    groups::Work,
    link::Link,
    settings::Settings,
    work::run,
};

/// What a worker takes.
pub(crate) type Calls = Batches<Asked, Result<Told>>;

pub(crate) struct Worker {
    pub(crate) settings: Arc<Settings>,
    pub(crate) calls: Calls,
    pub(crate) bell: Bell,
    /// How many workers have a connection.
    pub(crate) connected: watch::Sender<usize>,
}

/// One of those that have a connection, also when it ends in a panic: the others would leave calls to it.
struct Counted(watch::Sender<usize>);

impl Counted {
    fn new(connected: watch::Sender<usize>) -> Self {
        connected.send_modify(|count| *count += 1);
        Self(connected)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Why a connection is not served any more.
enum End {
    /// There will be no more calls.
    Closed,
    Lost(Error),
}

impl Worker {
    /// Works until there can be no more calls.
    pub(crate) async fn run(mut self, mut link: Link) {
        loop {
            let counted = Counted::new(self.connected.clone());
            let end = self.serve(link).await;
            drop(counted);
            let End::Lost(error) = end else { return };
            tracing::warn!(%error, "postgres: lost a connection");
            match self.reconnect(error).await {
                Some(again) => link = again,
                None => return,
            }
        }
    }

    async fn serve(&mut self, mut link: Link) -> End {
        loop {
            let batch = tokio::select! {
                batch = self.calls.take() => batch,
                () = link.session.gone() => return End::Lost(disconnected(None)),
            };
            let Some(batch) = batch else { return End::Closed };
            if let Err(error) = self.answer(&link, batch).await {
                return End::Lost(error);
            }
        }
    }

    /// # Errors
    ///
    /// The connection is not to be used again. The batch is answered all the same.
    async fn answer(&self, link: &Link, batch: Batch<Asked, Result<Told>>) -> Result<()> {
        let (mut work, groups) = Work::new(batch.calls);
        let ran = {
            // In place: a box would cost every batch an allocation of some kilobytes.
            let running = pin!(run(link, &self.bell, &mut work, groups));
            timeout(self.settings.call_timeout, running).await
        };
        let ran = ran.unwrap_or_else(|_| Err(timed_out()));
        let missing = ran.as_ref().err().map_or_else(timed_out, lost);
        batch.reply.tell(work.into_answers(&missing));
        ran
    }

    /// A new connection. `None` when there can be no more calls.
    async fn reconnect(&mut self, mut why: Error) -> Option<Link> {
        let (settings, mut backoff) = (self.settings.clone(), Backoff::default());
        let mut connected = self.connected.subscribe();
        loop {
            let pause = backoff.next();
            let mut attempt = pin!(async {
                tokio::time::sleep(pause).await;
                Link::open(&settings).await
            });
            loop {
                let nobody = *connected.borrow_and_update() == 0;
                tokio::select! {
                    link = &mut attempt => match link {
                        Ok(link) => {
                            tracing::info!("postgres: connected again");
                            return Some(link);
                        }
                        Err(error) => {
                            tracing::debug!(%error, "postgres: cannot connect");
                            why = error;
                            break;
                        }
                    },
                    // Whoever has a connection takes the calls; if nobody has, they are told so.
                    batch = self.calls.take(), if nobody => refuse(batch?, &why),
                    _ = connected.changed() => {}
                }
            }
        }
    }
}

fn refuse(batch: Batch<Asked, Result<Told>>, why: &Error) {
    let error = disconnected(Some(why));
    batch.reply.tell(batch.calls.iter().map(|_| Err(error.clone())).collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_panics_has_no_connection() {
        let connected = watch::Sender::new(1);
        let seen = connected.subscribe();
        let worker = tokio::spawn(async move {
            let _counted = Counted::new(connected);
            panic!("made up");
        });
        assert!(worker.await.unwrap_err().is_panic());
        assert_eq!(*seen.borrow(), 1);
    }
}
