//! The response to a request.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, response::Parts};
use http_body_util::BodyExt;
use hyper::{Error, body::Incoming};

use super::connection::{ConnectionTask, in_time};

/// A response whose body is read piece by piece.
#[derive(Debug)]
pub struct ResponseStream {
    head: Parts,
    body: Incoming,
    _connection: ConnectionTask,
}

/// A whole response.
#[derive(Clone)]
pub struct TestResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers, with all their lines.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The trailers, if any were sent.
    pub trailers: Option<HeaderMap>,
}

impl ResponseStream {
    pub(super) fn new(head: Response<Incoming>, connection: ConnectionTask) -> Self {
        let (head, body) = head.into_parts();
        Self { head, body, _connection: connection }
    }

    /// The next piece of the body as it arrives, or `None` at its end.
    ///
    /// # Errors
    ///
    /// When the body breaks off.
    pub async fn next_piece(&mut self) -> Result<Option<Bytes>, Error> {
        let frame = in_time(self.body.frame(), "a stream goes on").await.transpose()?;
        Ok(frame.and_then(|frame| frame.into_data().ok()))
    }

    /// Reads the rest of the body.
    ///
    /// # Errors
    ///
    /// When the body breaks off.
    pub async fn collect(self) -> Result<TestResponse, Error> {
        let body = in_time(self.body.collect(), "every answer comes to its end").await?;
        let Parts { status, headers, .. } = self.head;
        let trailers = body.trailers().cloned();
        Ok(TestResponse { status, headers, body: body.to_bytes(), trailers })
    }
}

impl TestResponse {
    /// All lines of a header.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<&HeaderValue> {
        self.headers.get_all(name).iter().collect()
    }

    /// The one line of a header, if it is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.lines(name).as_slice() {
            [line] => line.to_str().ok(),
            _ => None,
        }
    }

    /// True when it is marked as a replay.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.text("idempotent-replayed") == Some("true")
    }
}

/// Assertion messages print responses, so a long body is cut.
impl fmt::Debug for TestResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.body.slice(..self.body.len().min(200));
        write!(f, "{} {:?} {start:?} of {} bytes", self.status, self.headers, self.body.len())?;
        self.trailers.as_ref().map_or(Ok(()), |trailers| write!(f, " {trailers:?}"))
    }
}
