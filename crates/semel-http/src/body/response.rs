//! The response body that the caller reads.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::{BoxError, RelayedBody, WholeBody, request::next};

pin_project! {
    /// The body that the caller gets: the inner service's own, a recorded one, or one that is relayed.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: ResponseBodyKind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = ResponseBodyProjection]
    enum ResponseBodyKind<B> {
        Inner { #[pin] body: B },
        Whole { bytes: Bytes, trailers: Option<Box<HeaderMap>> },
        Relayed { relayed: RelayedBody },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn inner(body: B) -> Self {
        Self { kind: ResponseBodyKind::Inner { body } }
    }

    pub(crate) fn whole(whole: WholeBody) -> Self {
        let WholeBody { bytes, trailers, permit, .. } = whole;
        Self { kind: ResponseBodyKind::Whole { bytes: permit.bound_to(bytes), trailers } }
    }

    /// A small body that the layer made itself.
    pub(crate) const fn own(bytes: Bytes) -> Self {
        Self { kind: ResponseBodyKind::Whole { bytes, trailers: None } }
    }

    pub(crate) const fn relayed(relayed: RelayedBody) -> Self {
        Self { kind: ResponseBodyKind::Relayed { relayed } }
    }
}

/// The inner service's own body, unchanged.
impl<B> From<B> for ResponseBody<B> {
    fn from(body: B) -> Self {
        Self::inner(body)
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            ResponseBodyProjection::Inner { body } => {
                let frame = ready!(body.poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            ResponseBodyProjection::Whole { bytes, trailers } => {
                Poll::Ready(next(bytes, trailers).map(Ok))
            }
            ResponseBodyProjection::Relayed { relayed } => relayed.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            ResponseBodyKind::Inner { body } => body.is_end_stream(),
            ResponseBodyKind::Whole { bytes, trailers } => bytes.is_empty() && trailers.is_none(),
            ResponseBodyKind::Relayed { relayed } => relayed.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            ResponseBodyKind::Inner { body } => body.size_hint(),
            // Trailers need a body without a declared length.
            ResponseBodyKind::Whole { trailers: Some(_), .. } => SizeHint::default(),
            ResponseBodyKind::Whole { bytes, .. } => SizeHint::with_exact(bytes.len() as u64),
            ResponseBodyKind::Relayed { relayed } => relayed.size_hint(),
        }
    }
}
