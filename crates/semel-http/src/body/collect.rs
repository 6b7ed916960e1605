//! Reads a whole body into memory, within a limit and a budget.

use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, SizeHint};

use super::{BoxError, buffer::Buffer, next_frame};
use crate::budget::Permit;

/// A body in memory, with the permit for its bytes.
#[derive(Debug)]
pub(crate) struct WholeBody {
    pub(crate) bytes: Bytes,
    pub(crate) trailers: Option<Box<HeaderMap>>,
    pub(crate) permit: Permit,
    pub(crate) memory: BodyMemory,
}

/// The allocation that the bytes are in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyMemory {
    /// An allocation of exactly these bytes.
    Own,
    /// Perhaps a part of a larger allocation.
    Foreign,
}

/// How reading ended. The pieces are the bytes that were read until then.
pub(crate) enum Collected {
    Whole(WholeBody),
    /// The body is over the limit.
    TooLarge(Pieces),
    /// The budget has no capacity for it now.
    NoCapacity(Pieces),
    Broken(Pieces, BoxError),
}

/// The budget counts the pieces that it had capacity for until they are dropped.
pub(crate) type Pieces = Vec<Bytes>;

/// Reads until the end of the body, `limit` bytes, or the end of the permit's budget. A body that consists of one
/// piece is not copied.
pub(crate) async fn collect<B>(mut body: Pin<&mut B>, limit: usize, permit: Permit) -> Collected
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    // A body that declares a length over the limit is not read at all.
    if body.size_hint().lower() > limit as u64 {
        return Collected::TooLarge(Pieces::new());
    }
    let expected = expected_bytes(&body.size_hint(), limit);
    let (mut buffer, mut trailers) = (Buffer::new(permit), None::<Box<HeaderMap>>);
    while !body.is_end_stream()
        && let Some(frame) = next_frame(body.as_mut()).await
    {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Collected::Broken(buffer.into_pieces(Bytes::new()), error),
        };
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) if data.len() > limit - buffer.len() => {
                return Collected::TooLarge(buffer.into_pieces(data));
            }
            Ok(data) if buffer.len() == 0 && body.is_end_stream() => {
                return single(data, buffer.into_permit());
            }
            Ok(data) => {
                if !buffer.push(&data, expected) {
                    return Collected::NoCapacity(buffer.into_pieces(data));
                }
            }
            Err(frame) => {
                if let Ok(more) = frame.into_trailers() {
                    trailers.get_or_insert_default().extend(more);
                }
            }
        }
    }
    let (bytes, permit) = buffer.into_parts();
    Collected::Whole(WholeBody { bytes, trailers, permit, memory: BodyMemory::Own })
}

fn expected_bytes(hint: &SizeHint, limit: usize) -> usize {
    let upper = hint.upper().and_then(|upper| usize::try_from(upper).ok());
    upper.map_or(limit, |upper| upper.min(limit))
}

fn single(bytes: Bytes, mut permit: Permit) -> Collected {
    if permit.grow(bytes.len()) {
        Collected::Whole(WholeBody { bytes, trailers: None, permit, memory: BodyMemory::Foreign })
    } else {
        Collected::NoCapacity(vec![bytes])
    }
}
