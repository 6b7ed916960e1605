//! The body of an answer.

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

/// What the proxy answers with.
#[derive(Debug)]
pub(crate) enum ProxyBody {
    /// Its own words.
    Own(Bytes),
    /// The upstream's.
    Upstream(Box<ProxiedBody>),
}

/// Drives its connection while it is read, and gives it back at its end.
pub(crate) struct ProxiedBody {
    incoming: Incoming,
    /// `None`: it is back, or its own task drives it, or it is over.
    connection: Option<Box<UpstreamConnection>>,
    pool: Arc<ConnectionPool>,
    progress: Option<Arc<UploadProgress>>,
    /// Since when nothing came.
    quiet: Option<Instant>,
    waiting: MovingDeadline,
}

impl ProxiedBody {
    pub(super) fn new(answered: UpstreamResponse, pool: Arc<ConnectionPool>) -> Response<Self> {
        let UpstreamResponse { response, connection, progress } = answered;
        let uploading = progress.as_ref().is_some_and(|progress| !progress.is_done());
        response.map(|incoming| {
            let mut body = Self {
                incoming,
                connection: None,
                pool,
                progress,
                quiet: None,
                waiting: MovingDeadline::default(),
            };
            if uploading {
                // The upload must not wait for whoever reads the answer.
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
                // Once over, it has nothing more to say, and the body knows what that means.
                Poll::Pending if !connection.drive(cx) => self.connection = None,
                Poll::Pending => return Pin::new(&mut self.incoming).poll_frame(cx),
            }
        }
    }

    /// Nothing came: that may not go on for ever, unless the upload still goes on.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let since = *self.quiet.get_or_insert_with(Instant::now);
        let moved = self.progress.as_ref().map(|progress| progress.moved_at());
        let due = moved.map_or(since, |moved| since.max(moved)) + self.pool.timeouts.body;
        self.waiting.is_over(due, cx)
    }

    fn broke_off(&mut self, error: impl fmt::Display, kind: UpstreamError) {
        self.connection = None;
        let upstream = &self.pool.upstream;
        warn!(upstream = upstream.name, %error, "the upstream's answer broke off");
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
                            headers::trail(trailers);
                        }
                    }
                    Some(Err(error)) => self.broke_off(error, UpstreamError::Failed),
                    None => {}
                }
                self.quiet = None;
                self.give_back_at_end();
                Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
            }
            Poll::Pending if self.is_late(cx) => {
                let late = io::Error::new(io::ErrorKind::TimedOut, "the upstream's answer stopped");
                self.broke_off(&late, UpstreamError::Timeout);
                Poll::Ready(Some(Err(late.into())))
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
