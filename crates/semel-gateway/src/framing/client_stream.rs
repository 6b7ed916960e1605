//! The stream of a client connection: scans the bytes that arrive, and enforces the client's limits of time.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use semel_service::settings::ClientLimits;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Duration, Instant},
};

use super::{
    other_protocol::OtherProtocol,
    scanner::{ScanPhase, Scanner},
};
use crate::deadline::MovingDeadline;

/// The state of a connection that its stream and its service share. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionState(Arc<ConnectionFlags>);

#[derive(Debug, Default)]
struct ConnectionFlags {
    /// True while a request of this connection is in flight: then the gateway does not wait for the client.
    in_flight: AtomicBool,
    /// Set when the client speaks another protocol.
    other_protocol: OnceLock<OtherProtocol>,
}

impl ConnectionState {
    pub(crate) fn set_in_flight(&self, in_flight: bool) {
        self.0.in_flight.store(in_flight, Relaxed);
    }

    /// The other protocol that the client speaks.
    pub(crate) fn other_protocol(&self) -> Option<OtherProtocol> {
        self.0.other_protocol.get().copied()
    }
}

/// A stream whose incoming bytes are scanned, and whose client has to keep sending and reading.
#[derive(Debug)]
pub(crate) struct ClientStream<S> {
    stream: S,
    scanner: Scanner,
    limits: ClientLimits,
    connection: ConnectionState,
    /// True until the first bytes have arrived.
    is_new: bool,
    reading: MovingDeadline,
    /// When the client began the head that it sends, or sent the last piece of a body.
    since: Instant,
    writing: MovingDeadline,
    /// Since when nothing could be written.
    write_blocked: Option<Instant>,
}

impl<S> ClientStream<S> {
    pub(crate) fn new(stream: S, limits: ClientLimits, connection: ConnectionState) -> Self {
        Self {
            stream,
            scanner: Scanner::new(),
            limits,
            connection,
            is_new: true,
            reading: MovingDeadline::default(),
            since: Instant::now(),
            writing: MovingDeadline::default(),
            write_blocked: None,
        }
    }

    /// How long the client may take from `since` on; `None` if the gateway does not wait for the client.
    fn time_limit(&self) -> Option<Duration> {
        match self.scanner.phase() {
            ScanPhase::Body => Some(self.limits.body),
            // The client may have begun its next request; its time starts after this response.
            ScanPhase::Between | ScanPhase::Head if self.waits_for_gateway() => None,
            ScanPhase::Head => Some(self.limits.header),
            ScanPhase::Between => Some(self.limits.idle),
        }
    }

    /// True while the client waits for a response, or has not read all of one.
    fn waits_for_gateway(&self) -> bool {
        self.connection.0.in_flight.load(Relaxed) || self.write_blocked.is_some()
    }

    fn scanned(&mut self, bytes: &mut [u8]) {
        let before = self.scanner.phase();
        self.scanner.scan(bytes);
        // The time for a head does not restart with each of its bytes.
        let same_head = before == ScanPhase::Head && self.scanner.phase() == ScanPhase::Head;
        if !same_head {
            self.since = Instant::now();
        }
    }

    fn wrote<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.write_blocked = None;
            // The client's time until its next request starts with the response.
            self.since = self.since.max(Instant::now());
            return poll;
        }
        let since = *self.write_blocked.get_or_insert_with(Instant::now);
        if self.writing.has_passed(since + self.limits.body, cx) {
            return Poll::Ready(Err(too_slow("the client does not read its response")));
        }
        Poll::Pending
    }
}

fn too_slow(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

impl<S: AsyncWrite + Unpin> ClientStream<S> {
    /// Checks the protocol by the first bytes. Fails if the client was answered in another protocol: hyper must not add
    /// a second response.
    fn check_protocol(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<()> {
        self.is_new = false;
        let Some(protocol) = OtherProtocol::detect(bytes) else { return Ok(()) };
        let _ = self.connection.0.other_protocol.set(protocol);
        let Some(reply) = protocol.reply() else { return Ok(()) };
        // Nothing was written before, so the socket takes a few bytes, unless the client has gone.
        let _ = Pin::new(&mut self.stream).poll_write(cx, reply);
        Err(io::ErrorKind::InvalidData.into())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Not every part of hyper stops at a spoiled byte, so it gets no further bytes.
        if self.scanner.is_spoiled() {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let before = buf.filled().len();
        if Pin::new(&mut self.stream).poll_read(cx, buf)?.is_ready() {
            if self.is_new && buf.filled().len() > before {
                self.check_protocol(cx, &buf.filled()[before..])?;
            }
            self.scanned(&mut buf.filled_mut()[before..]);
            return Poll::Ready(Ok(()));
        }
        match self.time_limit() {
            Some(limit) => {
                let due = self.since + limit;
                if self.reading.has_passed(due, cx) {
                    return Poll::Ready(Err(too_slow("the client is too slow")));
                }
            }
            // hyper may not poll again once the response is sent, so the timer wakes the task.
            None => {
                let due = Instant::now() + self.limits.idle;
                self.reading.has_passed(due, cx);
            }
        }
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }
}
