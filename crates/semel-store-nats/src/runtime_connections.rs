//! A connection on one runtime, and the queue of the requests that go over it.

use std::{sync::Arc, time::Duration};

use semel_core::Result;
use semel_remote::batch::BatchLimits;
use semel_remote::{RequestQueue, WorkerGroup};
use tokio::{runtime::Handle, time::sleep};

use crate::{
    connection::Connection,
    pipeline::{Ask, Pipe},
    settings::Plan,
};

/// What is queued is told when it is taken; what it asks, by itself.
pub(crate) type Lane = RequestQueue<Ask, ()>;

const LIMITS: BatchLimits = BatchLimits { batch: 32, queued: 65_536, bytes: 8 << 20 };
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A lane on this runtime, and its connection, which is open.
pub(crate) async fn open(plan: &Plan) -> Result<(Lane, Arc<Connection>)> {
    let (lane, asks, crew) = RequestQueue::new(LIMITS);
    let connection = Arc::new(Connection::open(plan, crew).await?);
    tokio::spawn(Pipe::open(connection.clone()).await?.run(asks));
    Ok((lane, connection))
}

/// A lane on that runtime, which opens its connection by itself.
pub(crate) fn begin(plan: &Arc<Plan>, runtime: &Handle) -> Lane {
    RequestQueue::on(runtime, LIMITS, 1, |mut asks, crew| {
        let plan = plan.clone();
        async move {
            let pipe = tokio::select! {
                pipe = opened(&plan, &crew) => pipe,
                // The store is gone.
                _ = asks.take_if(|| false) => return,
            };
            pipe.run(asks).await;
        }
    })
}

async fn opened(plan: &Plan, crew: &WorkerGroup) -> Pipe {
    let mut pause = FIRST_PAUSE;
    loop {
        let opened = match Connection::open(plan, crew.clone()).await {
            Ok(connection) => Pipe::open(Arc::new(connection)).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(pipe) => return pipe,
            Err(error) => tracing::debug!(%error, "nats: no connection on this runtime yet"),
        }
        sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
