//! The socket of a connection to an upstream.

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

/// Reports failed writes as successful. An upstream may respond and close before it has read the whole request: the
/// response can still be read, but hyper would stop at the failed write.
#[derive(Debug)]
pub(super) struct UpstreamSocket {
    stream: TcpStream,
    state: SocketState,
}

/// The state of a socket that its connection reads.
#[derive(Clone, Debug, Default)]
pub(super) struct SocketState(Arc<SocketCounters>);

#[derive(Debug, Default)]
struct SocketCounters {
    /// The upstream reads no more. The connection can be used for the current response at most.
    write_closed: AtomicBool,
    /// Bytes read since [`SocketState::begin_poll`].
    read: AtomicUsize,
    /// All bytes written; the number may wrap.
    written: AtomicUsize,
}

impl SocketState {
    /// The most bytes that one poll reads: hyper reads on while interim responses (1xx) arrive, and no deadline would
    /// be checked meanwhile.
    const READ_PER_POLL: usize = 256 * 1024;

    pub(super) fn is_write_closed(&self) -> bool {
        self.0.write_closed.load(Relaxed)
    }

    /// The number of bytes written; it changes with every byte.
    pub(super) fn written(&self) -> usize {
        self.0.written.load(Relaxed)
    }

    /// To be called before every poll.
    pub(super) fn begin_poll(&self) {
        self.0.read.store(0, Relaxed);
    }

    fn has_read_enough(&self) -> bool {
        self.0.read.load(Relaxed) >= Self::READ_PER_POLL
    }
}

impl UpstreamSocket {
    pub(super) fn new(stream: TcpStream) -> (Self, SocketState) {
        let state = SocketState::default();
        (Self { stream, state: state.clone() }, state)
    }

    /// Counts bytes that the upstream refuses as written.
    fn after_write(&self, poll: Poll<io::Result<usize>>, length: usize) -> Poll<io::Result<usize>> {
        match poll {
            Poll::Ready(Err(error)) if is_from_upstream(&error) => {
                self.state.0.write_closed.store(true, Relaxed);
                Poll::Ready(Ok(length))
            }
            Poll::Ready(Ok(written)) => {
                self.state.0.written.fetch_add(written, Relaxed);
                Poll::Ready(Ok(written))
            }
            poll => poll,
        }
    }
}

fn is_from_upstream(error: &io::Error) -> bool {
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
        if self.state.has_read_enough() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        // The failed write has consumed the reset, so this end of the stream is not an orderly one.
        if read == 0 && buf.remaining() > 0 && self.state.is_write_closed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        self.state.0.read.fetch_add(read, Relaxed);
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
        self.after_write(poll, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.after_write(poll, bufs.iter().map(|buf| buf.len()).sum())
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
