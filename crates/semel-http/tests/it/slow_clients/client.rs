//! Slow clients: bare connections that write and read only the bytes that a test names.

use std::{net::SocketAddr, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep},
};

/// Connections that are opened at the same time.
const CONNECTING: usize = 256;
/// Bytes that the kernel may hold of an answer that is not read.
const SOCKET_BUFFER: u32 = 8 * 1024;
/// A wait that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct SlowClient(TcpStream);

/// The answer that a client has read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SlowAnswer {
    /// The answer has begun; the rest is not read.
    Ok,
    /// 503 `overloaded`, with `Retry-After`.
    Overloaded,
    /// 409 `in-progress`: more requests of one key than may wait for its run.
    Busy,
    /// 408 `body-timeout`.
    TimedOut,
    Other(String),
}

/// Opens `count` connections.
pub(crate) async fn connect(address: SocketAddr, count: usize) -> Vec<SlowClient> {
    stream::iter(0..count)
        .map(|_| SlowClient::connect(address))
        .buffer_unordered(CONNECTING)
        .collect()
        .await
}

impl SlowClient {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(SOCKET_BUFFER).unwrap();
        socket.set_nodelay(true).unwrap();
        Self(socket.connect(address).await.unwrap())
    }

    /// Sends the head of a request, and the start of the body it declares.
    pub(crate) async fn send_request(
        &mut self,
        path: &str,
        key: &str,
        declared: usize,
        start: usize,
    ) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             idempotency-key: {key}\r\ncontent-length: {declared}\r\n\r\n"
        );
        let mut bytes = head.into_bytes();
        bytes.resize(bytes.len() + start, b'x');
        self.write(&bytes).await;
    }

    /// Sends more of the body.
    pub(crate) async fn send_body(&mut self, bytes: usize) {
        self.write(&vec![b'x'; bytes]).await;
    }

    /// Ignores errors: a server that has refused the request does not read on, and its answer says why.
    async fn write(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).await;
    }

    /// Waits for the answer, and reads the body only where it is a problem.
    pub(crate) async fn read_answer(&mut self) -> SlowAnswer {
        let mut start = [0; "HTTP/1.1 200".len()];
        if let Err(error) = self.0.read_exact(&mut start).await {
            return SlowAnswer::Other(error.to_string());
        }
        if start.ends_with(b"200") {
            return SlowAnswer::Ok;
        }
        let mut rest = Vec::new();
        // The server closes the connection, which may be a reset.
        let _ = (&mut self.0).take(16 * 1024).read_to_end(&mut rest).await;
        let rest = String::from_utf8_lossy(&rest).to_ascii_lowercase();
        let has = |header: &str| rest.contains(header);
        match &start[9..] {
            b"503" if has("semel-status: overloaded") && has("retry-after:") => {
                SlowAnswer::Overloaded
            }
            b"409" if has("semel-status: in-progress") && has("retry-after:") => SlowAnswer::Busy,
            b"408" if has("semel-status: body-timeout") => SlowAnswer::TimedOut,
            _ => SlowAnswer::Other(format!("{}{rest}", String::from_utf8_lossy(&start))),
        }
    }

    /// Reads to the end of the answer's body of `length` bytes.
    pub(crate) async fn read_body(&mut self, length: usize) {
        let mut left = length;
        let mut piece = vec![0; 64 * 1024];
        while left > 0 {
            let read = self.0.read(&mut piece).await.unwrap();
            assert!(read > 0, "the answer ended early");
            left = left.saturating_sub(read);
        }
    }
}

/// Waits until `done`.
pub(crate) async fn wait_until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let started_at = Instant::now();
    while !done().await {
        assert!(started_at.elapsed() < TIMEOUT, "timed out: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
