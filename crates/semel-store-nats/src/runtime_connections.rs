//! The connection of one runtime: a request queue, and the pipeline that sends its requests over one connection.

use std::{sync::Arc, time::Duration};

use semel_core::Result;
use semel_remote::{RequestQueue, WorkerGroup, batch::BatchLimits};
use tokio::{runtime::Handle, time::sleep};

use crate::{
    connection::NatsConnection,
    pipeline::{NatsPipeline, QueuedRequest},
    settings::NatsSettings,
};

/// The queue acknowledges that a request was taken. The reply to the request has a channel of its own.
pub(crate) type NatsRequestQueue = RequestQueue<QueuedRequest, ()>;

const LIMITS: BatchLimits = BatchLimits { batch: 32, queued: 65_536, bytes: 8 << 20 };
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A queue on this runtime, and its open connection.
pub(crate) async fn open(
    settings: &NatsSettings,
) -> Result<(NatsRequestQueue, Arc<NatsConnection>)> {
    let (queue, requests, group) = RequestQueue::new(LIMITS);
    let connection = Arc::new(NatsConnection::open(settings, group).await?);
    tokio::spawn(NatsPipeline::open(connection.clone()).await?.run(requests));
    Ok((queue, connection))
}

/// A queue on `runtime`, whose connection is opened in the background.
pub(crate) fn open_in_background(
    settings: &Arc<NatsSettings>,
    runtime: &Handle,
) -> NatsRequestQueue {
    RequestQueue::on(runtime, LIMITS, 1, |mut requests, group| {
        let settings = settings.clone();
        async move {
            let pipeline = tokio::select! {
                pipeline = connect_until_open(&settings, &group) => pipeline,
                // The store was dropped.
                _ = requests.take_if(|| false) => return,
            };
            pipeline.run(requests).await;
        }
    })
}

async fn connect_until_open(settings: &NatsSettings, group: &WorkerGroup) -> NatsPipeline {
    let mut pause = FIRST_PAUSE;
    loop {
        let opened = match NatsConnection::open(settings, group.clone()).await {
            Ok(connection) => NatsPipeline::open(Arc::new(connection)).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(pipeline) => return pipeline,
            Err(error) => tracing::debug!(%error, "nats: no connection on this runtime yet"),
        }
        sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
