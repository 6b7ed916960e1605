//! The connections of one runtime: a request queue, and workers that serve it over one connection each.

use std::sync::Arc;

use futures_util::future::try_join_all;
use semel_core::{
    Result,
    steps::{StoreReply, StoreRequest},
};
use semel_remote::{RequestQueue, batch::BatchLimits};
use tokio::runtime::Handle;

use crate::{settings::RedisSettings, worker::RedisWorker};

pub(crate) type RedisRequestQueue = RequestQueue<StoreRequest, StoreReply>;

/// The settings of a runtime's queue and workers.
#[derive(Debug)]
pub(crate) struct RedisQueueSettings {
    pub(crate) settings: Arc<RedisSettings>,
    pub(crate) connections: usize,
    pub(crate) limits: BatchLimits,
}

impl RedisQueueSettings {
    /// A queue on this runtime with so many connections. All of them are open when this returns.
    pub(crate) async fn open(&self, connections: usize) -> Result<RedisRequestQueue> {
        let (queue, batches, group) = RequestQueue::new(self.limits);
        let workers = (0..connections).map(|_| RedisWorker::open(self.settings.clone(), &group));
        for worker in try_join_all(workers).await? {
            tokio::spawn(worker.run(batches.clone()));
        }
        Ok(queue)
    }

    /// A queue on `runtime` with so many connections, which are opened in the background.
    pub(crate) fn open_in_background(
        &self,
        runtime: &Handle,
        connections: usize,
    ) -> RedisRequestQueue {
        RequestQueue::on(runtime, self.limits, connections, |batches, group| {
            let settings = self.settings.clone();
            async move { RedisWorker::open_in_background(settings, &group).run(batches).await }
        })
    }
}
