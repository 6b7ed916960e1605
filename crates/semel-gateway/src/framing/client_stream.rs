//! The socket of a client, watched.

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

/// What is known of a connection beside its socket. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionState(Arc<ConnectionFlags>);

#[derive(Debug, Default)]
struct ConnectionFlags {
    /// True while a request of this connection is being answered. The client owes nothing then.
    in_flight: AtomicBool,
    /// Set when the client speaks another protocol.
    foreign: OnceLock<OtherProtocol>,
}

impl ConnectionState {
    pub(crate) fn set(&self, in_flight: bool) {
        self.0.in_flight.store(in_flight, Relaxed);
    }

    /// The other protocol that the client speaks.
    pub(crate) fn foreign(&self) -> Option<OtherProtocol> {
        self.0.foreign.get().copied()
    }
}

/// A stream whose bytes are scanned on the way in, and whose peer has to keep moving.
#[derive(Debug)]
pub(crate) struct ClientStream<S> {
    stream: S,
    scanner: Scanner,
    limits: ClientLimits,
    in_flight: ConnectionState,
    /// True until the first bytes have come.
    is_new: bool,
    reading: MovingDeadline,
    /// When the peer began what it is sending, or sent the last piece of a body.
    since: Instant,
    writing: MovingDeadline,
    /// Since when nothing could be written.
    stuck: Option<Instant>,
}

impl<S> ClientStream<S> {
    pub(crate) fn new(stream: S, limits: ClientLimits, in_flight: ConnectionState) -> Self {
        Self {
            stream,
            scanner: Scanner::new(),
            limits,
            in_flight,
            is_new: true,
            reading: MovingDeadline::default(),
            since: Instant::now(),
            writing: MovingDeadline::default(),
            stuck: None,
        }
    }

    /// How long the peer may take from `since` on, if it is the peer that we wait for.
    fn patience(&self) -> Option<Duration> {
        match self.scanner.phase() {
            ScanPhase::Body => Some(self.limits.body),
            // It may have begun the next request; that one's time comes after our answer.
            ScanPhase::Between | ScanPhase::Head if self.owes_nothing() => None,
            ScanPhase::Head => Some(self.limits.header),
            ScanPhase::Between => Some(self.limits.idle),
        }
    }

    /// True while it is we who have to answer, or the rest of an answer waits to be taken.
    fn owes_nothing(&self) -> bool {
        self.in_flight.0.in_flight.load(Relaxed) || self.stuck.is_some()
    }

    fn scanned(&mut self, bytes: &mut [u8]) {
        let before = self.scanner.phase();
        self.scanner.scan(bytes);
        // The time for a head does not start anew with each of its bytes.
        let same_head = before == ScanPhase::Head && self.scanner.phase() == ScanPhase::Head;
        if !same_head {
            self.since = Instant::now();
        }
    }

    fn wrote<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stuck = None;
            // Between two messages the peer has its full time from our answer on.
            self.since = self.since.max(Instant::now());
            return poll;
        }
        let since = *self.stuck.get_or_insert_with(Instant::now);
        if self.writing.is_over(since + self.limits.body, cx) {
            return Poll::Ready(Err(too_slow("the client does not read its answer")));
        }
        Poll::Pending
    }
}

fn too_slow(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

impl<S: AsyncWrite + Unpin> ClientStream<S> {
    /// Looks at the first bytes. Fails when the client got its reply in another protocol: hyper must not add one.
    fn check_protocol(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<()> {
        self.is_new = false;
        let Some(foreign) = OtherProtocol::of(bytes) else { return Ok(()) };
        let _ = self.in_flight.0.foreign.set(foreign);
        let Some(reply) = foreign.reply() else { return Ok(()) };
        // Nothing was written before: there is room for a few bytes, or the client has gone.
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
        // Not every part of hyper stops at a spoiled byte: it gets no more than those it has.
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
        match self.patience() {
            Some(patience) => {
                let due = self.since + patience;
                if self.reading.is_over(due, cx) {
                    return Poll::Ready(Err(too_slow("the client is too slow")));
                }
            }
            // Nobody may ask again once the answer is out: the timer does.
            None => {
                let due = Instant::now() + self.limits.idle;
                self.reading.is_over(due, cx);
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
