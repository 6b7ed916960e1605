//! The load: many connections on one thread, each with one request in flight.

mod connection;
mod request;
mod server;

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures_util::{TryStreamExt, stream::FuturesUnordered};
use hdrhistogram::Histogram;
use semel_bench::report::nanoseconds;
use tokio::time::timeout;

use crate::side::Answer;

pub(crate) use self::{
    connection::Connection,
    request::{Request, SESSION_COOKIE},
    server::Server,
};

/// How long a run may outlast its time: a server that hangs must not hang the benchmark.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends `request` over all connections until `time` has passed or their keys are used up, and
/// returns the latencies. `keys` gives each connection, by its number, the keys it sends.
///
/// # Errors
///
/// At the first answer that is not what `answer` says, or not in time.
pub(crate) async fn run<K: Iterator<Item = u64>>(
    connections: &mut [Connection],
    request: &Request,
    keys: impl Fn(u64) -> K,
    answer: Answer,
    time: Duration,
) -> Result<Histogram<u64>> {
    let latency = RefCell::new(nanoseconds());
    let until = Instant::now() + time;
    let all: FuturesUnordered<_> = (0..)
        .zip(connections)
        .map(|(n, connection)| connection.repeat(request.clone(), keys(n), answer, until, &latency))
        .collect();
    timeout(time + PATIENCE, all.try_collect::<()>()).await.context("no answer in time")??;
    Ok(latency.into_inner())
}
