//! Signals that end the process.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};
use tracing::{info, warn};

/// Time for the last line of the log to be written.
const LAST_LINE: Duration = Duration::from_millis(100);

/// Receives SIGTERM and SIGINT.
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

    /// Waits for the first signal. From then on a second one ends the process at once, after `clean_up`: no
    /// destructor runs then.
    pub async fn shutdown(mut self, clean_up: impl FnOnce() + Send + 'static) {
        self.next().await;
        info!(
            "shutting down: work in flight is finished; a second signal ends the process at once"
        );
        tokio::spawn(async move {
            self.next().await;
            warn!(
                "ended at once: operations in flight were cut off; their keys are free after the lease"
            );
            clean_up();
            sleep(LAST_LINE).await;
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
