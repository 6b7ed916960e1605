//! Workers on one runtime, and the queue of the calls that they serve.

use std::sync::Arc;

use futures_util::future::try_join_all;
use semel_core::Result;
use semel_remote::batch::BatchLimits;
use semel_remote::{RequestQueue, WorkerGroup};
use tokio::runtime::Handle;

use crate::{
    change_feed::Bell,
    connection::prepared::Link,
    request::{Asked, Told},
    settings::Settings,
    worker::{Calls, Worker},
};

pub(crate) type Lane = RequestQueue<Asked, Told>;

/// How lanes are made.
pub(crate) struct LanePlan {
    pub(crate) settings: Arc<Settings>,
    pub(crate) bell: Bell,
    pub(crate) connections: usize,
    pub(crate) limits: BatchLimits,
}

impl LanePlan {
    /// A lane on this runtime with that many connections, all of them open.
    pub(crate) async fn open(&self, connections: usize) -> Result<Lane> {
        let links = try_join_all((0..connections).map(|_| Link::open(&self.settings))).await?;
        let (lane, calls, crew) = RequestQueue::new(self.limits);
        for link in links {
            tokio::spawn(self.worker(calls.clone(), crew.clone()).run(link));
        }
        Ok(lane)
    }

    /// A lane on that runtime, which opens its connections by itself.
    pub(crate) fn begin(&self, runtime: &Handle) -> Lane {
        RequestQueue::on(runtime, self.limits, self.connections, |calls, crew| {
            self.worker(calls, crew).begin()
        })
    }

    fn worker(&self, calls: Calls, crew: WorkerGroup) -> Worker {
        Worker { settings: self.settings.clone(), calls, bell: self.bell.clone(), crew }
    }
}
