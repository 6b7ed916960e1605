//! How the process is asked to end.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};
use tracing::{info, warn};

const LAST_WORDS: Duration = Duration::from_millis(100);

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens for both from now on.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("signals cannot be listened for");
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: listen(terminate)?, interrupt: listen(interrupt)? })
    }

    /// Waits for the first signal. From then on a second one ends the process at once, after `clean_up`:
    /// nothing is dropped then.
    pub async fn asked_to_end(mut self, clean_up: impl FnOnce() + Send + 'static) {
        self.next().await;
        info!("shutting down: requests in flight come to their end; a second signal ends at once");
        tokio::spawn(async move {
            self.next().await;
            warn!("ended at once: operations in flight are left, their keys free after the lease");
            clean_up();
            // Time for that line to be written; nobody waits for one that cannot be.
            sleep(LAST_WORDS).await;
            std::process::exit(1);
        });
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
