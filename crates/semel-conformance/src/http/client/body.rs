//! A request body that tells when it is sent.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

pub(super) struct Outgoing {
    frames: VecDeque<Frame<Bytes>>,
    /// What is left, if the length is told.
    left: Option<u64>,
    /// hyper drops a body as soon as it has all of it, and this with it.
    _sent: oneshot::Sender<()>,
}

impl Outgoing {
    pub(super) fn new(
        pieces: &[Bytes],
        chunked: bool,
        trailers: &HeaderMap,
    ) -> (Self, oneshot::Receiver<()>) {
        let (sending, sent) = oneshot::channel();
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut frames: VecDeque<_> = pieces.iter().cloned().map(Frame::data).collect();
        if !trailers.is_empty() {
            frames.push_back(Frame::trailers(trailers.clone()));
        }
        (Self { frames, left: (!chunked).then_some(length), _sent: sending }, sent)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = self.frames.pop_front();
        let length = frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
        self.left = self.left.map(|left| left - length as u64);
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
