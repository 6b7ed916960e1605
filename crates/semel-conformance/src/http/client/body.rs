//! A request body that signals when it is sent.

use std::{
    collections::VecDeque,
    io::{Error, ErrorKind},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

/// How the end of a body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    Sized,
    Chunked,
}

pub(super) struct OutgoingBody {
    frames: VecDeque<Result<Frame<Bytes>, Error>>,
    /// Bytes to come, if the length is declared.
    left: Option<u64>,
    /// hyper drops the body, and this sender with it, when it has read all of it.
    _sent: oneshot::Sender<()>,
}

impl OutgoingBody {
    pub(super) fn new(
        pieces: &[Bytes],
        framing: BodyFraming,
        trailers: &HeaderMap,
    ) -> (Self, oneshot::Receiver<()>) {
        let (sending, sent) = oneshot::channel();
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut frames: VecDeque<_> = pieces.iter().cloned().map(Frame::data).map(Ok).collect();
        if !trailers.is_empty() {
            frames.push_back(Ok(Frame::trailers(trailers.clone())));
        }
        (
            Self {
                frames,
                left: (framing == BodyFraming::Sized).then_some(length),
                _sent: sending,
            },
            sent,
        )
    }

    /// Cuts the last frame and adds an error, so that hyper closes the connection.
    pub(super) fn break_off(&mut self) {
        let last = self.frames.pop_back().and_then(Result::ok);
        if let Some(Ok(data)) = last.map(Frame::into_data) {
            let half = data.slice(..data.len() / 2);
            self.frames.push_back(Ok(Frame::data(half)));
        }
        self.frames.push_back(Err(Error::from(ErrorKind::BrokenPipe)));
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = self.frames.pop_front();
        if let Some(Ok(frame)) = &frame {
            let length = frame.data_ref().map_or(0, Bytes::len);
            self.left = self.left.map(|left| left - length as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
