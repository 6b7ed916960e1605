//! A background task that runs maintenance periodically.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use semel_core::Result;
use tokio::{task::JoinHandle, time::sleep};

use crate::{InboxPool, PgInbox, telemetry};

/// A task that runs maintenance until this handle is dropped.
#[derive(Debug)]
#[must_use = "maintenance ends when this is dropped"]
pub struct MaintenanceTask(JoinHandle<()>);

impl Drop for MaintenanceTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<P: InboxPool + Clone + 'static> PgInbox<P> {
    /// Starts a task that runs [`PgInbox::maintain`] about every `every`, and sets the gauges of
    /// [`telemetry::name`](crate::telemetry::name). A failure is logged and tried again. Every process may have such a
    /// task: only one of them purges at a time.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn maintain_every(&self, every: Duration) -> MaintenanceTask {
        MaintenanceTask(tokio::spawn(maintain_every(self.clone(), every)))
    }

    async fn maintain_once(&self) -> Result<()> {
        self.maintain().await?;
        telemetry::set_gauges(&self.table(), &self.stats().await?);
        Ok(())
    }
}

async fn maintain_every<P: InboxPool + Clone + 'static>(inbox: PgInbox<P>, every: Duration) {
    loop {
        // Jitter, so that processes that started together do not run maintenance together.
        sleep(every.mul_f64(rand::random_range(0.75..1.25))).await;
        let table = inbox.table();
        match AssertUnwindSafe(inbox.maintain_once()).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!("maintenance of {table} failed, will try again: {error}")
            }
            Err(_) => tracing::error!("maintenance of {table} panicked, will try again"),
        }
    }
}
