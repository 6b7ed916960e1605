//! What the inner service reads.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::Seen;

pin_project! {
    /// The body the inner service gets: the caller's own, or what was read of it before the claim.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindProjection]
    enum Kind<B> {
        Passed { #[pin] body: B },
        Watched { #[pin] body: B, seen: Seen },
        Read { bytes: Bytes, trailers: Option<Box<HeaderMap>> },
    }
}

impl<B> RequestBody<B> {
    pub(crate) const fn passed(body: B) -> Self {
        Self { kind: Kind::Passed { body } }
    }

    pub(crate) const fn watched(body: B, seen: Seen) -> Self {
        Self { kind: Kind::Watched { body, seen } }
    }

    /// True for what was read before the claim, false for what still comes from the caller.
    #[must_use]
    pub const fn is_in_memory(&self) -> bool {
        matches!(self.kind, Kind::Read { .. })
    }

    pub(crate) const fn read(bytes: Bytes, trailers: Option<Box<HeaderMap>>) -> Self {
        Self { kind: Kind::Read { bytes, trailers } }
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
            KindProjection::Passed { body } => body.poll_frame(cx),
            KindProjection::Watched { mut body, seen } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                match &frame {
                    Some(Ok(frame)) => seen.frame(frame),
                    Some(Err(_)) => return Poll::Ready(frame),
                    None => {}
                }
                // A reader that knows the length does not ask for the end.
                if frame.is_none() || body.is_end_stream() {
                    seen.end();
                }
                Poll::Ready(frame)
            }
            KindProjection::Read { bytes, trailers } => Poll::Ready(next(bytes, trailers).map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Passed { body } | Kind::Watched { body, .. } => body.is_end_stream(),
            Kind::Read { bytes, trailers } => bytes.is_empty() && trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Passed { body } | Kind::Watched { body, .. } => body.size_hint(),
            // Trailers need a body without a declared length.
            Kind::Read { trailers: Some(_), .. } => SizeHint::default(),
            Kind::Read { bytes, .. } => SizeHint::with_exact(bytes.len() as u64),
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
