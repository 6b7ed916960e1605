//! One connection to an upstream, driven by whoever uses it: no task of its own, and no way from one
//! task to another for every piece.

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

/// The most that an answer may have. hyper's own limit of 100 is less than some services send.
const HEADERS: usize = 256;

/// A connection that is open, as far as anybody knows.
pub(super) struct UpstreamConnection {
    send: SendRequest<Upload>,
    drive: http1::Connection<TokioIo<UpstreamSocket>, Upload>,
    line: SocketState,
    over: bool,
    /// For the head of an answer.
    waiting: MovingDeadline,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// Nothing left; here is the request back.
    Unsent(Box<Request<Upload>>),
    /// Something may have arrived.
    Broken(hyper::Error),
    /// All may have arrived.
    Late,
}

impl UpstreamConnection {
    pub(super) async fn new(stream: TcpStream) -> hyper::Result<Self> {
        let (socket, line) = UpstreamSocket::new(stream);
        let mut builder = http1::Builder::new();
        let handshake = builder.max_headers(HEADERS).handshake(TokioIo::new(socket));
        let (send, drive) = handshake.await?;
        Ok(Self { send, drive, line, over: false, waiting: MovingDeadline::default() })
    }

    /// Sends a request and waits for the head of its answer; for `limit` at most from the moment the
    /// request was last seen to move.
    pub(super) async fn ask(
        &mut self,
        request: Request<Upload>,
        progress: Option<Arc<UploadProgress>>,
        limit: Duration,
    ) -> Result<Response<Incoming>, ExchangeError> {
        let began = Instant::now();
        let mut answer = std::pin::pin!(self.send.try_send_request(request));
        let (drive, over, waiting) = (&mut self.drive, &mut self.over, &mut self.waiting);
        let line = &self.line;
        poll_fn(move |cx| {
            line.go_on();
            if !*over && Pin::new(&mut *drive).poll(cx).is_ready() {
                *over = true;
            }
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(answer.map_err(|mut error| match error.take_message() {
                    Some(request) => ExchangeError::Unsent(Box::new(request)),
                    None => ExchangeError::Broken(error.into_error()),
                }));
            }
            let moved = progress.as_ref().map_or(began, |progress| progress.moved_at());
            match waiting.is_over(moved + limit, cx) {
                true => Poll::Ready(Err(ExchangeError::Late)),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Moves bytes; false once there is nothing more to move.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        self.line.go_on();
        if !self.over && Pin::new(&mut self.drive).poll(cx).is_ready() {
            self.over = true;
        }
        !self.over
    }

    /// Moves what is left of a request whose answer has begun or is over, and closes. Ends, too, when the
    /// upstream takes nothing for `limit`, unless it is the client that we wait for.
    pub(super) async fn finish(
        self: Box<Self>,
        progress: Option<Arc<UploadProgress>>,
        limit: Duration,
    ) {
        // Without a sender it closes once it has nothing to do.
        let Self { send, mut drive, line, mut waiting, .. } = *self;
        drop(send);
        let (mut written, mut since) = (line.written(), Instant::now());
        poll_fn(|cx| {
            line.go_on();
            if Pin::new(&mut drive).poll(cx).is_ready() || line.is_deaf() {
                return Poll::Ready(());
            }
            let waits = progress.as_ref().is_some_and(|progress| progress.waits_for_client());
            if waits || line.written() != written {
                (written, since) = (line.written(), Instant::now());
            }
            match waiting.is_over(since + limit, cx) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// True once there is nothing more to move, in either direction.
    pub(super) fn is_over(&self) -> bool {
        self.over || self.line.is_deaf()
    }

    /// After an answer, or before a request: true if the connection can take another.
    pub(super) fn is_free(&mut self) -> bool {
        // Nobody is to be woken: what happens while it waits in the pool is seen when it is taken out.
        let mut cx = Context::from_waker(Waker::noop());
        !self.line.is_deaf() && self.drive(&mut cx) && self.send.is_ready()
    }
}
