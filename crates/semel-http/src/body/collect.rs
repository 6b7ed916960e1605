//! Reads a body whole, within bounds.

use std::{collections::VecDeque, pin::Pin};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;

use super::{BoxError, next_frame};
use crate::budget::Permit;

/// A body in memory, with the permit for its bytes.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    pub(crate) trailers: Option<Box<HeaderMap>>,
    pub(crate) permit: Permit,
}

/// How reading ended. The pieces are what was read until then.
pub(crate) enum Collected {
    Whole(Whole),
    /// Over the limit.
    TooLarge(Pieces),
    /// There is no room for it now.
    NoRoom(Pieces),
    Broken(Pieces, BoxError),
}

pub(crate) type Pieces = VecDeque<Bytes>;

/// Reads until the end, `limit` bytes, or the end of the permit's budget. A body of one piece is not
/// copied.
pub(crate) async fn collect<B>(mut body: Pin<&mut B>, limit: usize, mut permit: Permit) -> Collected
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let (mut pieces, mut length, mut trailers) = (Pieces::new(), 0, None::<Box<HeaderMap>>);
    // What says that it is too large is not read at all.
    if body.size_hint().lower() > limit as u64 {
        return Collected::TooLarge(pieces);
    }
    while !body.is_end_stream()
        && let Some(frame) = next_frame(body.as_mut()).await
    {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Collected::Broken(pieces, error),
        };
        match frame.into_data() {
            Ok(data) => {
                length += data.len();
                let room = permit.grow(data.len());
                pieces.push_back(data);
                if length > limit {
                    return Collected::TooLarge(pieces);
                }
                if !room {
                    return Collected::NoRoom(pieces);
                }
            }
            Err(frame) => {
                if let Ok(more) = frame.into_trailers() {
                    trailers.get_or_insert_default().extend(more);
                }
            }
        }
    }
    Collected::Whole(Whole { bytes: joined(pieces, length), trailers, permit })
}

fn joined(mut pieces: Pieces, length: usize) -> Bytes {
    if pieces.len() <= 1 {
        return pieces.pop_front().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(length);
    pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
    whole.freeze()
}
