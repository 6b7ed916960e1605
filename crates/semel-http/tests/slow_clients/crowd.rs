//! Clients by the thousand, each a bare connection that writes and reads as little as it is told to.

use std::{net::SocketAddr, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep},
};

/// Connections that are opened at the same time.
const AT_ONCE: usize = 256;
/// What the kernel may hold of an answer that is not read.
const SOCKET_BUFFER: u32 = 8 * 1024;
/// Nothing here takes so long on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client(TcpStream);

/// What a client has read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// The answer has begun; the rest is not read.
    Ok,
    /// 503 `overloaded`, with `Retry-After`.
    Overloaded,
    /// 409 `in-progress`: more ask for one key at the same moment than may wait for it.
    Busy,
    /// 408 `body-timeout`.
    TimedOut,
    Other(String),
}

/// `count` connections.
pub(crate) async fn connect(address: SocketAddr, count: usize) -> Vec<Client> {
    stream::iter(0..count)
        .map(|_| Client::connect(address))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(SOCKET_BUFFER).unwrap();
        socket.set_nodelay(true).unwrap();
        Self(socket.connect(address).await.unwrap())
    }

    /// Sends the head of a request, and the start of the body it declares.
    pub(crate) async fn ask(&mut self, path: &str, key: &str, declared: usize, start: usize) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nidempotency-key: {key}\r\ncontent-length: {declared}\r\n\r\n"
        );
        let mut bytes = head.into_bytes();
        bytes.resize(bytes.len() + start, b'x');
        self.write(&bytes).await;
    }

    /// Sends more of the body.
    pub(crate) async fn send(&mut self, bytes: usize) {
        self.write(&vec![b'x'; bytes]).await;
    }

    /// A server that has refused the request does not listen any more; its answer says why.
    async fn write(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).await;
    }

    /// Waits for the answer, and reads the body only where it is a problem.
    pub(crate) async fn answer(&mut self) -> Answer {
        let mut start = [0; "HTTP/1.1 200".len()];
        if let Err(error) = self.0.read_exact(&mut start).await {
            return Answer::Other(error.to_string());
        }
        if start.ends_with(b"200") {
            return Answer::Ok;
        }
        let mut rest = Vec::new();
        // The server closes, and the kernel may say so with a reset.
        let _ = (&mut self.0).take(16 * 1024).read_to_end(&mut rest).await;
        let rest = String::from_utf8_lossy(&rest).to_ascii_lowercase();
        let says = |header: &str| rest.contains(header);
        match &start[9..] {
            b"503" if says("semel-status: overloaded") && says("retry-after:") => {
                Answer::Overloaded
            }
            b"409" if says("semel-status: in-progress") && says("retry-after:") => Answer::Busy,
            b"408" if says("semel-status: body-timeout") => Answer::TimedOut,
            _ => Answer::Other(format!("{}{rest}", String::from_utf8_lossy(&start))),
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
        assert!(started_at.elapsed() < PATIENCE, "{what}: it did not come to that");
        sleep(Duration::from_millis(20)).await;
    }
}
