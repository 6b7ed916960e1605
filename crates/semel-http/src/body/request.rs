//! The request body that the inner service reads.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::BodyCopy;

pin_project! {
    /// The body that the inner service gets: the caller's own, or the bytes that were read before the claim.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        #[pin]
        kind: RequestBodyKind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = RequestBodyProjection]
    enum RequestBodyKind<B> {
        Passed { #[pin] body: B },
        Copied { #[pin] body: B, copy: BodyCopy },
        InMemory { bytes: Bytes, trailers: Option<Box<HeaderMap>> },
    }
}

impl<B> RequestBody<B> {
    pub(crate) const fn passed(body: B) -> Self {
        Self { kind: RequestBodyKind::Passed { body } }
    }

    pub(crate) const fn copied(body: B, copy: BodyCopy) -> Self {
        Self { kind: RequestBodyKind::Copied { body, copy } }
    }

    /// True if the body was read before the claim, false if it still comes from the caller.
    #[must_use]
    pub const fn is_in_memory(&self) -> bool {
        matches!(self.kind, RequestBodyKind::InMemory { .. })
    }

    pub(crate) const fn in_memory(bytes: Bytes, trailers: Option<Box<HeaderMap>>) -> Self {
        Self { kind: RequestBodyKind::InMemory { bytes, trailers } }
    }
}

impl<B: Body<Data = Bytes>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            RequestBodyProjection::Passed { body } => body.poll_frame(cx),
            RequestBodyProjection::Copied { mut body, copy } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                match &frame {
                    Some(Ok(frame)) => copy.frame(frame),
                    Some(Err(_)) => return Poll::Ready(frame),
                    None => {}
                }
                // A reader that knows the length does not poll for the end.
                if frame.is_none() || body.is_end_stream() {
                    copy.end();
                }
                Poll::Ready(frame)
            }
            RequestBodyProjection::InMemory { bytes, trailers } => {
                Poll::Ready(next(bytes, trailers).map(Ok))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            RequestBodyKind::Passed { body } | RequestBodyKind::Copied { body, .. } => {
                body.is_end_stream()
            }
            RequestBodyKind::InMemory { bytes, trailers } => bytes.is_empty() && trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            RequestBodyKind::Passed { body } | RequestBodyKind::Copied { body, .. } => {
                body.size_hint()
            }
            // Trailers need a body without a declared length.
            RequestBodyKind::InMemory { trailers: Some(_), .. } => SizeHint::default(),
            RequestBodyKind::InMemory { bytes, .. } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

/// The next frame of a body in memory.
pub(super) fn next(
    bytes: &mut Bytes,
    trailers: &mut Option<Box<HeaderMap>>,
) -> Option<Frame<Bytes>> {
    if bytes.is_empty() {
        return trailers.take().map(|trailers| Frame::trailers(*trailers));
    }
    Some(Frame::data(std::mem::take(bytes)))
}
