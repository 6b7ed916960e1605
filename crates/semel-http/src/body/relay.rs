//! Relays an answer that is not kept: a stream, or one over the limit.
//!
//! The run reads the body and hands piece after piece to the caller, so that a caller who goes away does
//! not break the operation off: the rest is read and dropped.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::{sync::mpsc, task::coop::consume_budget};

use super::{BoxError, collect::Pieces, next_frame};
use crate::header::strip_semel_trailers;

/// Pieces on the way to a caller who may never read them, and no budget counts them: one is enough, as
/// the next is made while the server writes the last.
const ON_THE_WAY: usize = 1;

#[derive(Debug)]
enum RelayPiece {
    Frame(Frame<Bytes>),
    Failed(BoxError),
    End,
}

/// The run's side.
#[derive(Debug)]
pub(crate) struct BodyRelay {
    pieces: mpsc::Sender<RelayPiece>,
    ended: RelayEnd,
}

/// What a body was, once it has ended.
#[derive(Debug, Default)]
pub(crate) struct RelayEnd {
    pub(crate) length: u64,
    pub(crate) trailers: Option<HeaderMap>,
}

/// The caller's side.
#[derive(Debug)]
pub(crate) struct RelayedBody {
    pieces: mpsc::Receiver<RelayPiece>,
    /// Bytes to come, where the inner body knew.
    left: Option<u64>,
    ended: bool,
}

impl BodyRelay {
    /// Both ends, for a body that still has `left` bytes.
    pub(crate) fn new(left: Option<u64>) -> (Self, RelayedBody) {
        let (sender, receiver) = mpsc::channel(ON_THE_WAY);
        let relayed = RelayedBody { pieces: receiver, left, ended: false };
        (Self { pieces: sender, ended: RelayEnd::default() }, relayed)
    }

    /// Sends what was read already, then the error that reading ended with or the rest of the body.
    /// `None` when it was broken off: by itself, or because nobody listens and the lease is lost.
    pub(crate) async fn all<B>(
        self,
        pieces: Pieces,
        body: Pin<&mut B>,
        error: Option<BoxError>,
        lease_lost: impl Future<Output = ()>,
    ) -> Option<RelayEnd>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let listener = self.pieces.clone();
        let given_up = async move {
            listener.closed().await;
            lease_lost.await;
        };
        tokio::select! {
            biased;
            ended = self.send_all(pieces, body, error) => ended,
            () = given_up => None,
        }
    }

    async fn send_all<B>(
        mut self,
        pieces: Pieces,
        mut body: Pin<&mut B>,
        error: Option<BoxError>,
    ) -> Option<RelayEnd>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        for piece in pieces {
            self.frame(Frame::data(piece)).await;
        }
        if let Some(error) = error {
            return self.failed(error).await;
        }
        while let Some(frame) = self.next(body.as_mut()).await {
            match frame {
                Ok(frame) => self.frame(frame).await,
                Err(error) => return self.failed(error).await,
            }
            // A body that is always ready must not keep its thread when nobody slows it down.
            consume_budget().await;
        }
        // Nobody there to hear it: the body has ended all the same.
        let _ = self.pieces.send(RelayPiece::End).await;
        Some(self.ended)
    }

    /// The body broke off.
    async fn failed(self, error: BoxError) -> Option<RelayEnd> {
        let _ = self.pieces.send(RelayPiece::Failed(error)).await;
        None
    }

    /// The next piece. It is not asked for before there is a place for it, unless nobody listens.
    async fn next<B>(&self, body: Pin<&mut B>) -> Option<Result<Frame<Bytes>, BoxError>>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let _ = self.pieces.reserve().await;
        next_frame(body).await
    }

    async fn frame(&mut self, mut frame: Frame<Bytes>) {
        if let Some(trailers) = frame.trailers_mut() {
            strip_semel_trailers(trailers);
        }
        self.ended.length += frame.data_ref().map_or(0, |data| data.len() as u64);
        if let Some(trailers) = frame.trailers_ref() {
            self.ended.trailers.get_or_insert_default().extend(trailers.clone());
        }
        let _ = self.pieces.send(RelayPiece::Frame(frame)).await;
    }
}

impl RelayedBody {
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let piece = ready!(self.pieces.poll_recv(cx));
        if let Some(RelayPiece::Frame(frame)) = piece {
            let sent = frame.data_ref().map_or(0, |data| data.len() as u64);
            self.left = self.left.map(|left| left.saturating_sub(sent));
            return Poll::Ready(Some(Ok(frame)));
        }
        self.ended = true;
        Poll::Ready(match piece {
            Some(RelayPiece::Failed(error)) => Some(Err(error)),
            Some(RelayPiece::Frame(_) | RelayPiece::End) => None,
            // The run is gone. To end here would make half an answer look whole.
            None => Some(Err("the answer was broken off".into())),
        })
    }

    pub(super) const fn is_end_stream(&self) -> bool {
        self.ended
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
