//! Workers on one runtime, and the queue of the calls that they serve.

use std::sync::Arc;

use futures_util::future::try_join_all;
use semel_core::{
    Result,
    steps::{StoreReply, StoreRequest},
};
use semel_remote::RequestQueue;
use semel_remote::batch::BatchLimits;
use tokio::runtime::Handle;

use crate::{settings::Plan, worker::Worker};

pub(crate) type Lane = RequestQueue<StoreRequest, StoreReply>;

/// How lanes are made.
#[derive(Debug)]
pub(crate) struct LanePlan {
    pub(crate) plan: Arc<Plan>,
    pub(crate) connections: usize,
    pub(crate) limits: BatchLimits,
}

impl LanePlan {
    /// A lane on this runtime with that many connections, all of them open.
    pub(crate) async fn open(&self, connections: usize) -> Result<Lane> {
        let (lane, batches, crew) = RequestQueue::new(self.limits);
        let workers = (0..connections).map(|_| Worker::open(self.plan.clone(), &crew));
        for worker in try_join_all(workers).await? {
            tokio::spawn(worker.run(batches.clone()));
        }
        Ok(lane)
    }

    /// A lane on that runtime, which opens that many connections by itself.
    pub(crate) fn begin(&self, runtime: &Handle, connections: usize) -> Lane {
        RequestQueue::on(runtime, self.limits, connections, |batches, crew| {
            let plan = self.plan.clone();
            async move { Worker::begin(plan, &crew).run(batches).await }
        })
    }
}
