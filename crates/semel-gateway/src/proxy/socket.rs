//! The socket to an upstream.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// An upstream may answer before it has read all, and close: the answer is there to be read, though nothing
/// more can be written. hyper would stop at the failed write and never look.
#[derive(Debug)]
pub(super) struct UpstreamSocket {
    stream: TcpStream,
    line: SocketState,
}

/// What is known of a socket outside of it.
#[derive(Clone, Debug, Default)]
pub(super) struct SocketState(Arc<SocketCounters>);

#[derive(Debug, Default)]
struct SocketCounters {
    /// The upstream takes no more. The connection is good for the present answer at most.
    deaf: AtomicBool,
    /// What was read since [`SocketState::go_on`].
    taken: AtomicUsize,
    /// What was written in all; it may wrap.
    written: AtomicUsize,
}

impl SocketState {
    /// No poll reads more: hyper goes on for as long as hints (1xx) come in, and no limit of time would
    /// ever be looked at.
    const AT_ONCE: usize = 256 * 1024;

    pub(super) fn is_deaf(&self) -> bool {
        self.0.deaf.load(Relaxed)
    }

    /// Changes with every byte that is written.
    pub(super) fn written(&self) -> usize {
        self.0.written.load(Relaxed)
    }

    /// Before every poll.
    pub(super) fn go_on(&self) {
        self.0.taken.store(0, Relaxed);
    }

    fn has_enough(&self) -> bool {
        self.0.taken.load(Relaxed) >= Self::AT_ONCE
    }
}

impl UpstreamSocket {
    pub(super) fn new(stream: TcpStream) -> (Self, SocketState) {
        let line = SocketState::default();
        (Self { stream, line: line.clone() }, line)
    }

    /// Whatever the upstream does not take counts as written.
    fn written(&self, poll: Poll<io::Result<usize>>, length: usize) -> Poll<io::Result<usize>> {
        match poll {
            Poll::Ready(Err(error)) if is_of_the_peer(&error) => {
                self.line.0.deaf.store(true, Relaxed);
                Poll::Ready(Ok(length))
            }
            Poll::Ready(Ok(written)) => {
                self.line.0.written.fetch_add(written, Relaxed);
                Poll::Ready(Ok(written))
            }
            poll => poll,
        }
    }
}

fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected
    )
}

impl AsyncRead for UpstreamSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.line.has_enough() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        // The write took the reset away from the read: this is no orderly end.
        if read == 0 && buf.remaining() > 0 && self.line.is_deaf() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        self.line.0.taken.fetch_add(read, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UpstreamSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(poll, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(poll, bufs.iter().map(|buf| buf.len()).sum())
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
