//! The body of an answer.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use semel::http::BoxError;
use tokio::time::Instant;

use super::{connection::Connection, headers, pool::Pool};

/// What the proxy answers with.
#[derive(Debug)]
pub(in crate::gateway) enum ProxyBody {
    /// Its own words.
    Own(Bytes),
    /// The upstream's.
    Upstream(Box<UpstreamBody>),
}

/// Drives its connection while it is read, and gives it back at its end.
pub(in crate::gateway) struct UpstreamBody {
    incoming: Incoming,
    lent: Option<Lent>,
    /// Since when nothing came.
    quiet: Option<Instant>,
}

struct Lent {
    connection: Box<Connection>,
    pool: Arc<Pool>,
}

impl UpstreamBody {
    pub(super) fn new(incoming: Incoming, connection: Box<Connection>, pool: Arc<Pool>) -> Self {
        let mut body = Self { incoming, lent: Some(Lent { connection, pool }), quiet: None };
        body.give_back_at_end();
        body
    }

    fn give_back_at_end(&mut self) {
        if self.incoming.is_end_stream()
            && let Some(Lent { connection, pool }) = self.lent.take()
        {
            pool.give_back(connection);
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        loop {
            let poll = Pin::new(&mut self.incoming).poll_frame(cx);
            let Some(lent) = &mut self.lent else { return poll };
            match poll {
                Poll::Ready(None) => {
                    if let Some(Lent { connection, pool }) = self.lent.take() {
                        pool.give_back(connection);
                    }
                    return poll;
                }
                Poll::Ready(Some(_)) => return poll,
                // Once over, it has nothing more to say, and the body knows what that means.
                Poll::Pending if !lent.connection.drive(cx) => self.lent = None,
                Poll::Pending => return Pin::new(&mut self.incoming).poll_frame(cx),
            }
        }
    }

    /// Nothing came: that may not go on for ever.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let since = *self.quiet.get_or_insert_with(Instant::now);
        let Some(lent) = &mut self.lent else { return false };
        lent.connection.is_late(since + lent.pool.timeouts.body, cx)
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.poll_next(cx) {
            Poll::Ready(mut frame) => {
                if let Some(Ok(frame)) = &mut frame
                    && let Some(trailers) = frame.trailers_mut()
                {
                    headers::trail(trailers);
                }
                self.quiet = None;
                self.give_back_at_end();
                Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
            }
            Poll::Pending if self.is_late(cx) => {
                self.lent = None;
                let late = io::Error::new(io::ErrorKind::TimedOut, "the upstream's answer stopped");
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

impl std::fmt::Debug for UpstreamBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamBody").finish_non_exhaustive()
    }
}
