//! One connection to an upstream. The task that uses it drives it, so that no piece of a message has to pass from one
//! task to another.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures_util::future::poll_fn;
use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    time::{Duration, Instant},
};

use super::{
    socket::{SocketState, UpstreamSocket},
    upload::{Upload, UploadProgress},
};
use crate::deadline::MovingDeadline;

/// The most headers of a response. hyper's default limit of 100 is less than some services send.
const HEADERS: usize = 256;

/// A connection that is open, as far as is known.
pub(super) struct UpstreamConnection {
    sender: SendRequest<Upload>,
    drive: http1::Connection<TokioIo<UpstreamSocket>, Upload>,
    socket: SocketState,
    closed: bool,
    /// The deadline for the head of a response.
    waiting: MovingDeadline,
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// Nothing was sent; this is the request.
    Unsent(Box<Request<Upload>>),
    /// Some of the request may have arrived.
    Broken(hyper::Error),
    /// There was no response in time; all of the request may have arrived.
    Timeout,
}

impl UpstreamConnection {
    pub(super) async fn new(stream: TcpStream) -> hyper::Result<Self> {
        let (stream, socket) = UpstreamSocket::new(stream);
        let mut builder = http1::Builder::new();
        let handshake = builder.max_headers(HEADERS).handshake(TokioIo::new(stream));
        let (sender, drive) = handshake.await?;
        Ok(Self { sender, drive, socket, closed: false, waiting: MovingDeadline::default() })
    }

    /// Sends a request and waits for the head of its response, at most for `limit` after the upload last moved.
    pub(super) async fn send(
        &mut self,
        request: Request<Upload>,
        progress: Option<Arc<UploadProgress>>,
        limit: Duration,
    ) -> Result<Response<Incoming>, ExchangeError> {
        let began = Instant::now();
        let mut response = std::pin::pin!(self.sender.try_send_request(request));
        let (drive, closed, waiting) = (&mut self.drive, &mut self.closed, &mut self.waiting);
        let socket = &self.socket;
        poll_fn(move |cx| {
            socket.begin_poll();
            if !*closed && Pin::new(&mut *drive).poll(cx).is_ready() {
                *closed = true;
            }
            if let Poll::Ready(response) = response.as_mut().poll(cx) {
                return Poll::Ready(response.map_err(|mut error| match error.take_message() {
                    Some(request) => ExchangeError::Unsent(Box::new(request)),
                    None => ExchangeError::Broken(error.into_error()),
                }));
            }
            let moved = progress.as_ref().map_or(began, |progress| progress.moved_at());
            match waiting.has_passed(moved + limit, cx) {
                true => Poll::Ready(Err(ExchangeError::Timeout)),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Reads and writes what it can; false once the connection is closed.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        self.socket.begin_poll();
        if !self.closed && Pin::new(&mut self.drive).poll(cx).is_ready() {
            self.closed = true;
        }
        !self.closed
    }

    /// Sends the rest of a request whose response has begun or ended, and closes the connection. Gives up when the
    /// upstream reads nothing for `limit`, unless the client has sent nothing more.
    pub(super) async fn finish(
        self: Box<Self>,
        progress: Option<Arc<UploadProgress>>,
        limit: Duration,
    ) {
        // Without the sender, hyper closes the connection once it has nothing to do.
        let Self { sender, mut drive, socket, mut waiting, .. } = *self;
        drop(sender);
        let (mut written, mut since) = (socket.written(), Instant::now());
        poll_fn(|cx| {
            socket.begin_poll();
            if Pin::new(&mut drive).poll(cx).is_ready() || socket.is_write_closed() {
                return Poll::Ready(());
            }
            let waits = progress.as_ref().is_some_and(|progress| progress.waits_for_client());
            if waits || socket.written() != written {
                (written, since) = (socket.written(), Instant::now());
            }
            match waiting.has_passed(since + limit, cx) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// True once the connection is closed, or the upstream reads no more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed || self.socket.is_write_closed()
    }

    /// True if the connection can take another request.
    pub(super) fn is_free(&mut self) -> bool {
        // No task waits for an idle connection: its state is checked when it is taken from the pool.
        let mut cx = Context::from_waker(Waker::noop());
        !self.socket.is_write_closed() && self.drive(&mut cx) && self.sender.is_ready()
    }
}
