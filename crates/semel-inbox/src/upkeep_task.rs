//! Upkeep by itself, now and then.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use semel_core::Result;
use tokio::{task::JoinHandle, time::sleep};

use crate::{InboxPool, PgInbox, telemetry};

/// A task that looks after an inbox until this is dropped.
#[derive(Debug)]
#[must_use = "upkeep ends when this is dropped"]
pub struct UpkeepTask(JoinHandle<()>);

impl Drop for UpkeepTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<P: InboxPool + Clone + 'static> PgInbox<P> {
    /// Starts a task that does [`PgInbox::upkeep`] about so often and shows how large the table is, in the
    /// gauges of [`telemetry::name`](crate::telemetry::name). What fails is logged and tried again. Every process
    /// may have one: they do not get in each other's way.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn keep_up(&self, every: Duration) -> UpkeepTask {
        UpkeepTask(tokio::spawn(keep_up(self.clone(), every)))
    }

    async fn take_turn(&self) -> Result<()> {
        self.upkeep().await?;
        telemetry::shown(&self.table(), &self.stats().await?);
        Ok(())
    }
}

async fn keep_up<P: InboxPool + Clone + 'static>(inbox: PgInbox<P>, every: Duration) {
    loop {
        // Jittered, so that processes that started together do not come together.
        sleep(every.mul_f64(rand::random_range(0.75..1.25))).await;
        let table = inbox.table();
        match AssertUnwindSafe(inbox.take_turn()).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("upkeep of {table} failed, will try again: {error}"),
            Err(_) => tracing::error!("upkeep of {table} panicked, will try again"),
        }
    }
}
