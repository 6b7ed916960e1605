//! The socket to an upstream.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// An upstream may answer before it has read all, and close: the answer is there to be read, though nothing
/// more can be written. hyper would stop at the failed write and never look.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    deaf: Deaf,
}

/// True once the upstream takes no more. The connection is good for the present answer at most.
#[derive(Clone, Debug, Default)]
pub(super) struct Deaf(Arc<AtomicBool>);

impl Deaf {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> (Self, Deaf) {
        let deaf = Deaf::default();
        (Self { stream, deaf: deaf.clone() }, deaf)
    }

    /// Whatever the upstream does not take counts as written.
    fn written(&self, poll: Poll<io::Result<usize>>, length: usize) -> Poll<io::Result<usize>> {
        match poll {
            Poll::Ready(Err(error)) if is_of_the_peer(&error) => {
                self.deaf.0.store(true, Relaxed);
                Poll::Ready(Ok(length))
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

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
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
