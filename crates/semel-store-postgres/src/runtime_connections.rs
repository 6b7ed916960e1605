//! The connections of one runtime: a group of workers, and the queue of requests that they serve.

use std::sync::Arc;

use futures_util::future::try_join_all;
use semel_core::Result;
use semel_remote::batch::BatchLimits;
use semel_remote::{RequestQueue, WorkerGroup};
use tokio::runtime::Handle;

use crate::{
    change_feed::PgNotifier,
    connection::PreparedConnection,
    request::{PgReply, PgRequest},
    settings::PgSettings,
    worker::{PgBatches, PgWorker},
};

pub(crate) type PgRequestQueue = RequestQueue<PgRequest, PgReply>;

/// Starts the workers of a runtime.
pub(crate) struct PgWorkerGroups {
    pub(crate) settings: Arc<PgSettings>,
    pub(crate) notifier: PgNotifier,
    pub(crate) connections: usize,
    pub(crate) limits: BatchLimits,
}

impl PgWorkerGroups {
    /// Starts workers on the current runtime, once all of their connections are open.
    pub(crate) async fn open(&self, connections: usize) -> Result<PgRequestQueue> {
        let opening = (0..connections).map(|_| PreparedConnection::open(&self.settings));
        let connections = try_join_all(opening).await?;
        let (queue, batches, group) = RequestQueue::new(self.limits);
        for connection in connections {
            tokio::spawn(self.worker(batches.clone(), group.clone()).run(connection));
        }
        Ok(queue)
    }

    /// Starts workers on that runtime. They open their connections in the background.
    pub(crate) fn start_on(&self, runtime: &Handle) -> PgRequestQueue {
        RequestQueue::on(runtime, self.limits, self.connections, |batches, group| {
            self.worker(batches, group).connect_and_run()
        })
    }

    fn worker(&self, batches: PgBatches, group: WorkerGroup) -> PgWorker {
        let (settings, notifier) = (self.settings.clone(), self.notifier.clone());
        PgWorker { settings, batches, notifier, group }
    }
}
