//! Workers on one runtime, and the queue of the calls that they serve.

use std::sync::Arc;

use futures_util::future::try_join_all;
use semel_core::{
    Result,
    batch::{BatchLimits, Batcher},
    remote,
    steps::{Call, Said},
};
use tokio::{runtime::Handle, sync::watch};

use crate::{link::Plan, worker::Worker};

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) calls: Batcher<Call, Result<Said>>,
    /// Workers that have a connection.
    connected: watch::Receiver<usize>,
}

/// How lanes are made.
#[derive(Clone, Debug)]
pub(crate) struct LanePlan {
    pub(crate) plan: Arc<Plan>,
    pub(crate) connections: usize,
    pub(crate) limits: BatchLimits,
}

impl LanePlan {
    /// A lane on this runtime, with all its connections.
    pub(crate) async fn open(&self) -> Result<Lane> {
        let (connected, seen) = watch::channel(0);
        let workers = (0..self.connections).map(|_| Worker::open(self.plan.clone(), &connected));
        let workers = try_join_all(workers).await?;
        let (calls, batches) = Batcher::new(self.limits);
        for worker in workers {
            tokio::spawn(worker.run(batches.clone()));
        }
        Ok(Lane { calls, connected: seen })
    }

    /// A lane on that runtime, which opens its connections by itself.
    pub(crate) fn begin(&self, runtime: &Handle) -> Lane {
        let ((connected, seen), (calls, batches)) = (watch::channel(0), Batcher::new(self.limits));
        for _ in 0..self.connections {
            let (plan, connected, batches) =
                (self.plan.clone(), connected.clone(), batches.clone());
            runtime.spawn(async move { Worker::begin(plan, &connected).run(batches).await });
        }
        Lane { calls, connected: seen }
    }
}

impl remote::Lane for Lane {
    fn is_up(&self) -> bool {
        *self.connected.borrow() > 0
    }

    fn is_over(&self) -> bool {
        self.connected.has_changed().is_err()
    }
}
