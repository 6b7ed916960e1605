//! Load over HTTP/1.1: many connections on one thread, each with one request in flight.

mod connection;
mod pace;
mod process;
mod request;

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures_util::{TryStreamExt, stream::FuturesUnordered};
use hdrhistogram::Histogram;
use tokio::time::timeout;

use self::pace::{Pace, Schedule};
use crate::report::nanoseconds;

pub use self::{
    connection::Connection,
    process::{Process, Stop, end_with_parent},
    request::{BLANK, Request},
};

/// How long a run may outlast its time: a server that hangs must not hang the benchmark.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who has to answer a request, and how one sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The handler.
    Handler,
    /// The layer, which says so in this header.
    Recorded(&'static str),
}

/// Sends `request` over all connections, one as soon as the last is answered, until `time` has
/// passed or their keys are used up, and returns the latencies. `keys` gives each connection, by
/// its number, the keys it sends.
///
/// # Errors
///
/// At the first answer that is not what `answer` says, or not in time.
pub async fn run<K: Iterator<Item = u64>>(
    connections: &mut [Connection],
    request: &Request,
    keys: impl Fn(u64) -> K,
    answer: Answer,
    time: Duration,
) -> Result<Histogram<u64>> {
    let until = Instant::now() + time;
    send(connections, request, keys, answer, time, || Ok(Pace::AtOnce { until })).await
}

/// Like [`run`], but sends `rate` requests per second whether or not others are answered. A latency
/// counts from when its request was due, so that a server that stalls is charged for all the
/// requests it held up, not only for those that were in flight.
///
/// # Errors
///
/// Those of [`run`].
pub async fn run_at<K: Iterator<Item = u64>>(
    connections: &mut [Connection],
    request: &Request,
    keys: impl Fn(u64) -> K,
    answer: Answer,
    time: Duration,
    rate: f64,
) -> Result<Histogram<u64>> {
    let schedule = Schedule::new(rate, time);
    send(connections, request, keys, answer, time, || Pace::by(&schedule)).await
}

async fn send<'a, K: Iterator<Item = u64>>(
    connections: &mut [Connection],
    request: &Request,
    keys: impl Fn(u64) -> K,
    answer: Answer,
    time: Duration,
    pace: impl Fn() -> Result<Pace<'a>>,
) -> Result<Histogram<u64>> {
    let latency = RefCell::new(nanoseconds());
    let all = FuturesUnordered::new();
    for (n, connection) in (0..).zip(connections) {
        all.push(connection.repeat(request.clone(), keys(n), answer, pace()?, &latency));
    }
    timeout(time + PATIENCE, all.try_collect::<()>()).await.context("no answer in time")??;
    Ok(latency.into_inner())
}

#[cfg(test)]
mod tests {
    use std::{iter, net::Ipv4Addr};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::sleep,
    };

    use super::*;

    const STALL: Duration = Duration::from_millis(100);

    /// Answers one connection, the first request only after a stall.
    async fn stalling_once(listener: TcpListener) -> Result<()> {
        let (mut stream, _) = listener.accept().await?;
        let mut request = [0; 1024];
        let mut stall = Some(STALL);
        while stream.read(&mut request).await? > 0 {
            sleep(stall.take().unwrap_or_default()).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_stall_counts_for_all_requests_it_held_up() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(stalling_once(listener));
        let mut connections = [Connection::open(port).await.unwrap()];
        let request = Request::get("/", "ok");
        let keys = |_| iter::repeat(0);
        let latency =
            run_at(&mut connections, &request, keys, Answer::Handler, STALL, 200.0).await.unwrap();
        drop(connections);
        server.await.unwrap().unwrap();
        // Twenty were due, one each 5 ms: half of them in the first half of the stall.
        assert_eq!(latency.len(), 20);
        assert!(latency.value_at_quantile(0.5) >= 45_000_000, "{latency:?}");
    }
}
