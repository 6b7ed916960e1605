//! A background task that runs upkeep periodically.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use semel_core::Result;
use tokio::{task::JoinHandle, time::sleep};

use crate::{InboxPool, PgInbox, telemetry};

/// A task that runs upkeep until this handle is dropped.
#[derive(Debug)]
#[must_use = "upkeep ends when this is dropped"]
pub struct UpkeepTask(JoinHandle<()>);

impl Drop for UpkeepTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<P: InboxPool + Clone + 'static> PgInbox<P> {
    /// Starts a task that runs [`PgInbox::upkeep`] about every `every`, and sets the gauges of
    /// [`telemetry::name`](crate::telemetry::name). A failure is logged and tried again. Every process may have such a
    /// task: only one of them purges at a time.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn keep_up(&self, every: Duration) -> UpkeepTask {
        UpkeepTask(tokio::spawn(keep_up(self.clone(), every)))
    }

    async fn run_once(&self) -> Result<()> {
        self.upkeep().await?;
        telemetry::set_gauges(&self.table(), &self.stats().await?);
        Ok(())
    }
}

async fn keep_up<P: InboxPool + Clone + 'static>(inbox: PgInbox<P>, every: Duration) {
    loop {
        // Jitter, so that processes that started together do not run upkeep together.
        sleep(every.mul_f64(rand::random_range(0.75..1.25))).await;
        let table = inbox.table();
        match AssertUnwindSafe(inbox.run_once()).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("upkeep of {table} failed, will try again: {error}"),
            Err(_) => tracing::error!("upkeep of {table} panicked, will try again"),
        }
    }
}
