//! A process: a consumer on a runtime of its own, which can be killed at any moment.

use std::time::Duration;

use semel_consumer::{ConsumerControl, ConsumerReport};
use semel_core::Result;
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
    time::timeout,
};

use super::handler::Identity;

/// A running consumer.
pub(super) struct Process {
    pub(super) identity: Identity,
    pub(super) control: ConsumerControl,
    ended: oneshot::Receiver<Result<ConsumerReport>>,
    /// Dropped without waiting, which a test's own runtime allows.
    runtime: Option<Runtime>,
}

/// A consumer that reports its control and, later, its end.
pub(super) type Started = (ConsumerControl, oneshot::Receiver<Result<ConsumerReport>>);

impl Process {
    /// Runs `start` on a runtime of its own.
    pub(super) async fn spawn(
        identity: Identity,
        start: impl Future<Output = Started> + Send + 'static,
    ) -> Self {
        let mut builder = Builder::new_multi_thread();
        let runtime =
            builder.worker_threads(2).enable_all().build().expect("a runtime for a process");
        let started = runtime.spawn(start).await;
        let (control, ended) = started.expect("a process of the suite starts");
        Self { identity, control, ended, runtime: Some(runtime) }
    }

    /// Kills the process: nothing leaves it from now on, and all of its connections are closed.
    pub(super) fn kill(self) {
        drop(self);
    }

    /// Shuts the consumer down, and waits for its end.
    pub(super) async fn stop(mut self, patience: Duration) -> ConsumerReport {
        self.control.stop();
        let ended = timeout(patience, &mut self.ended).await;
        let ended = ended.expect("the consumer shuts down").expect("the consumer reports its end");
        ended.expect("the consumer ends without an error")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.identity.dead.set(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
