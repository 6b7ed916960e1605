//! Request and response bodies: read into memory within bounds, copied in passing, or relayed piece by piece.

mod buffer;
mod collect;
mod copy;
mod relay;
mod request;
mod response;

use std::pin::Pin;

use bytes::Bytes;
use futures_util::future::poll_fn;
use http_body::{Body, Frame};

pub(crate) use collect::{BodyMemory, Collected, Pieces, WholeBody, collect};
pub(crate) use copy::BodyCopy;
pub(crate) use relay::{BodyRelay, RelayEnd, RelayedBody};
pub use request::RequestBody;
pub use response::ResponseBody;

/// The error of any body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The next frame. The error is boxed before the next await, so that it need not be `Send`.
async fn next_frame<B>(mut body: Pin<&mut B>) -> Option<Result<Frame<Bytes>, BoxError>>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let boxed = |frame: Result<_, B::Error>| frame.map_err(Into::into);
    poll_fn(|cx| body.as_mut().poll_frame(cx).map(|frame| frame.map(boxed))).await
}
