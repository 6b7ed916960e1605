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

use self::pace::{SendPace, SendSchedule};
use crate::report::nanoseconds;

pub use self::{
    connection::LoadConnection,
    process::{BenchProcess, StopMode, end_with_parent},
    request::{BLANK, LoadRequest},
};

/// How much longer than its time a run may take. A server that hangs must not hang the benchmark.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which answer is expected, and how it is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedAnswer {
    /// The answer of the handler.
    Handler,
    /// A replayed answer, marked with this header.
    Recorded(&'static str),
}

/// Sends `request` over all connections, the next one when the last is answered, until `time` has passed or the keys
/// are used up, and returns the latencies. `keys` returns the keys of a connection by its number.
///
/// # Errors
///
/// At the first answer that is not the expected one, or does not come in time.
pub async fn run<K: Iterator<Item = u64>>(
    connections: &mut [LoadConnection],
    request: &LoadRequest,
    keys: impl Fn(u64) -> K,
    answer: ExpectedAnswer,
    time: Duration,
) -> Result<Histogram<u64>> {
    let until = Instant::now() + time;
    send(connections, request, keys, answer, time, || Ok(SendPace::AtOnce { until })).await
}

/// Like [`run`], but sends `rate` requests per second whether or not others are answered. A latency counts from the
/// time at which its request was due, so that a stall counts for all requests that it delayed, not only for those in
/// flight.
///
/// # Errors
///
/// The errors of [`run`].
pub async fn run_at<K: Iterator<Item = u64>>(
    connections: &mut [LoadConnection],
    request: &LoadRequest,
    keys: impl Fn(u64) -> K,
    answer: ExpectedAnswer,
    time: Duration,
    rate: f64,
) -> Result<Histogram<u64>> {
    let schedule = SendSchedule::new(rate, time);
    send(connections, request, keys, answer, time, || SendPace::by(&schedule)).await
}

async fn send<'a, K: Iterator<Item = u64>>(
    connections: &mut [LoadConnection],
    request: &LoadRequest,
    keys: impl Fn(u64) -> K,
    answer: ExpectedAnswer,
    time: Duration,
    pace: impl Fn() -> Result<SendPace<'a>>,
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
        let mut connections = [LoadConnection::open(port).await.unwrap()];
        let request = LoadRequest::get("/", "ok");
        let keys = |_| iter::repeat(0);
        let latency =
            run_at(&mut connections, &request, keys, ExpectedAnswer::Handler, STALL, 200.0)
                .await
                .unwrap();
        drop(connections);
        server.await.unwrap().unwrap();
        // Twenty were due, one each 5 ms: half of them in the first half of the stall.
        assert_eq!(latency.len(), 20);
        assert!(latency.value_at_quantile(0.5) >= 45_000_000, "{latency:?}");
    }
}
