//! Relays the body of an answer that is not kept in memory: a stream, or a body over the limit.
//!
//! The run reads the body and sends piece after piece to the caller. If the caller goes away, the operation
//! continues: the run reads the rest and drops it.

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

/// Pieces in the channel. The caller may never read them and no budget counts them, so there is only one: the
/// next piece is made while the server writes the last.
const QUEUED_PIECES: usize = 1;

#[derive(Debug)]
enum RelayPiece {
    Frame(Frame<Bytes>),
    Failed(BoxError),
    End,
}

/// The sending side, in the run.
#[derive(Debug)]
pub(crate) struct BodyRelay {
    pieces: mpsc::Sender<RelayPiece>,
    ended: RelayEnd,
}

/// The length and trailers of a body that has ended.
#[derive(Debug, Default)]
pub(crate) struct RelayEnd {
    pub(crate) length: u64,
    pub(crate) trailers: Option<HeaderMap>,
}

/// The receiving side: the body that the caller gets.
#[derive(Debug)]
pub(crate) struct RelayedBody {
    pieces: mpsc::Receiver<RelayPiece>,
    /// Bytes to come, if the inner body declared its length.
    left: Option<u64>,
    ended: bool,
}

impl BodyRelay {
    /// Both sides, for a body that still has `left` bytes.
    pub(crate) fn new(left: Option<u64>) -> (Self, RelayedBody) {
        let (sender, receiver) = mpsc::channel(QUEUED_PIECES);
        let relayed = RelayedBody { pieces: receiver, left, ended: false };
        (Self { pieces: sender, ended: RelayEnd::default() }, relayed)
    }

    /// Sends the pieces that were already read, then the error that reading ended with or the rest of the body.
    /// `None` if the body broke off, or if the caller is gone and the lease is lost.
    pub(crate) async fn send_body<B>(
        self,
        pieces: Pieces,
        body: Pin<&mut B>,
        error: Option<BoxError>,
        lease_lost: impl Future<Output = ()>,
    ) -> Option<RelayEnd>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let caller = self.pieces.clone();
        let caller_gone_and_lease_lost = async move {
            caller.closed().await;
            lease_lost.await;
        };
        tokio::select! {
            biased;
            ended = self.send_all(pieces, body, error) => ended,
            () = caller_gone_and_lease_lost => None,
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
            self.send_frame(Frame::data(piece)).await;
        }
        if let Some(error) = error {
            return self.send_error(error).await;
        }
        while let Some(frame) = self.next(body.as_mut()).await {
            match frame {
                Ok(frame) => self.send_frame(frame).await,
                Err(error) => return self.send_error(error).await,
            }
            // A body that is always ready would keep its thread if the caller is gone, since sends do not wait.
            consume_budget().await;
        }
        // If the caller is gone, the body has ended all the same.
        let _ = self.pieces.send(RelayPiece::End).await;
        Some(self.ended)
    }

    async fn send_error(self, error: BoxError) -> Option<RelayEnd> {
        let _ = self.pieces.send(RelayPiece::Failed(error)).await;
        None
    }

    /// The next frame. It is read only when the channel has capacity for it, or when the caller is gone.
    async fn next<B>(&self, body: Pin<&mut B>) -> Option<Result<Frame<Bytes>, BoxError>>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let _ = self.pieces.reserve().await;
        next_frame(body).await
    }

    async fn send_frame(&mut self, mut frame: Frame<Bytes>) {
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
            // The run is gone. Ending without an error would make half an answer look whole.
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
