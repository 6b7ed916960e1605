//! The body of a response from the proxy.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use semel::http::BoxError;
use tokio::time::Instant;
use tracing::warn;

use super::{
    connection::UpstreamConnection,
    headers,
    pool::{ConnectionPool, UpstreamResponse},
    upload::UploadProgress,
};
use crate::{deadline::MovingDeadline, metrics::UpstreamError};

/// The body of a response.
#[derive(Debug)]
pub(crate) enum ProxyBody {
    /// A response of the gateway itself.
    Own(Bytes),
    /// A response of the upstream.
    Upstream(Box<ProxiedBody>),
}

/// The body of an upstream's response. It drives its connection while it is read, and returns it to the pool at its
/// end.
pub(crate) struct ProxiedBody {
    incoming: Incoming,
    /// `None` if it was returned to the pool, is driven by a task of its own, or is closed.
    connection: Option<Box<UpstreamConnection>>,
    pool: Arc<ConnectionPool>,
    progress: Option<Arc<UploadProgress>>,
    /// Since when nothing has arrived.
    quiet_since: Option<Instant>,
    waiting: MovingDeadline,
}

impl ProxiedBody {
    pub(super) fn new(upstream: UpstreamResponse, pool: Arc<ConnectionPool>) -> Response<Self> {
        let UpstreamResponse { response, connection, progress } = upstream;
        let uploading = progress.as_ref().is_some_and(|progress| !progress.is_done());
        response.map(|incoming| {
            let mut body = Self {
                incoming,
                connection: None,
                pool,
                progress,
                quiet_since: None,
                waiting: MovingDeadline::default(),
            };
            if uploading {
                // The upload must not wait for the client to read the response.
                body.pool.finish(connection, body.progress.as_ref());
            } else {
                body.connection = Some(connection);
                body.give_back_at_end();
            }
            body
        })
    }

    fn give_back_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.give_back(connection, self.progress.as_ref());
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        loop {
            let poll = Pin::new(&mut self.incoming).poll_frame(cx);
            let Some(connection) = &mut self.connection else { return poll };
            match poll {
                Poll::Ready(None) => {
                    self.give_back();
                    return poll;
                }
                Poll::Ready(Some(_)) => return poll,
                // Once the connection is closed, polling the body gives its end or an error.
                Poll::Pending if !connection.drive(cx) => self.connection = None,
                Poll::Pending => return Pin::new(&mut self.incoming).poll_frame(cx),
            }
        }
    }

    /// True if nothing has arrived for too long, unless the upload still goes on.
    fn is_timed_out(&mut self, cx: &mut Context<'_>) -> bool {
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        let moved = self.progress.as_ref().map(|progress| progress.moved_at());
        let due = moved.map_or(since, |moved| since.max(moved)) + self.pool.timeouts.body;
        self.waiting.has_passed(due, cx)
    }

    fn broke_off(&mut self, error: impl fmt::Display, kind: UpstreamError) {
        self.connection = None;
        let upstream = &self.pool.upstream;
        warn!(upstream = upstream.name, %error, "the upstream's response broke off");
        upstream.errors.count(kind);
    }
}

impl Body for ProxiedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.poll_next(cx) {
            Poll::Ready(mut frame) => {
                match &mut frame {
                    Some(Ok(frame)) => {
                        if let Some(trailers) = frame.trailers_mut() {
                            headers::filter_trailers(trailers);
                        }
                    }
                    Some(Err(error)) => self.broke_off(error, UpstreamError::Failed),
                    None => {}
                }
                self.quiet_since = None;
                self.give_back_at_end();
                Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
            }
            Poll::Pending if self.is_timed_out(cx) => {
                let timeout =
                    io::Error::new(io::ErrorKind::TimedOut, "the upstream's response stopped");
                self.broke_off(&timeout, UpstreamError::Timeout);
                Poll::Ready(Some(Err(timeout.into())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Upstream(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_empty(),
            Self::Upstream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Upstream(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for ProxiedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamBody").finish_non_exhaustive()
    }
}
