//! The outcome: what the work produced, success or final failure. Recorded once and replayed.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, ErrorKind, Result};

/// What the work produced. All callers that repeat the request share it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    extra: Option<Box<Extra>>,
    body: Body,
}

/// What a plain success does not have.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Extra {
    failure: Option<Failure>,
    head: Head,
}

/// A final failure: recorded like a success, so that a retry gets the same answer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Failure {
    /// A stable word for programs, such as `card_declined`.
    pub kind: String,
    /// A sentence for people.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message may quote a payload.
        f.debug_struct("Failure").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// One header line. Names are kept as given; repeated names are repeated lines.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Header {
    /// Field name.
    pub name: String,
    /// Field value, not necessarily UTF-8.
    pub value: Bytes,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: [redacted]", self.name)
    }
}

/// What an HTTP answer has besides its body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Head {
    /// Status code.
    pub status: Option<u16>,
    /// Media type of the body.
    pub content_type: Option<String>,
    /// Allow-listed headers in the order they were sent.
    pub headers: Vec<Header>,
    /// Fields that were sent after the body.
    pub trailers: Vec<Header>,
}

/// The bytes of an outcome, or the note that they were too many to keep.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Body {
    /// All of it.
    Kept(Bytes),
    /// It was over the size limit: the operation is completed, but its body cannot be replayed.
    Omitted {
        /// How many bytes there were.
        length: u64,
    },
}

impl Outcome {
    /// A success with these bytes.
    #[must_use]
    pub fn success(body: impl Into<Bytes>) -> Self {
        Self { extra: None, body: Body::Kept(body.into()) }
    }

    /// A final failure without a body.
    #[must_use]
    pub fn failure(kind: impl Into<String>, message: impl Into<String>) -> Self {
        let failure = Failure { kind: kind.into(), message: message.into() };
        Self::from_parts(Some(failure), Head::default(), Body::Kept(Bytes::new()))
    }

    /// A success whose body is `value` as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] when the value has no JSON form.
    pub fn json<T: Serialize>(value: &T) -> Result<Self> {
        // The encoder's own message may quote the value, so it is neither shown nor kept.
        let body = serde_json::to_vec(value)
            .map_err(|_| Error::invalid("outcome: the value has no JSON form"))?;
        Ok(Self::success(body))
    }

    /// Adds status, content type and headers.
    #[must_use]
    pub fn with_head(self, head: Head) -> Self {
        Self::from_parts(self.extra.and_then(|extra| extra.failure), head, self.body)
    }

    /// Replaces the body.
    #[must_use]
    pub fn with_body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// The value written by [`Outcome::json`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] when the body was omitted or is not a `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        let Body::Kept(bytes) = &self.body else {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "outcome: completed, but its body was not kept: it was too large or had no JSON form",
            ));
        };
        // The decoder's own message may quote the payload, so it is neither shown nor kept.
        serde_json::from_slice(bytes).map_err(|_| {
            let wanted = std::any::type_name::<T>();
            Error::new(ErrorKind::Corrupt, format!("outcome: the recorded body is no {wanted}"))
        })
    }

    /// The failure, unless this is a success.
    #[must_use]
    pub fn as_failure(&self) -> Option<&Failure> {
        self.extra.as_ref()?.failure.as_ref()
    }

    /// True for a success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.as_failure().is_none()
    }

    /// Status, content type and headers, when there are any.
    #[must_use]
    pub fn head(&self) -> Option<&Head> {
        self.extra.as_ref().map(|extra| &extra.head).filter(|head| **head != Head::default())
    }

    /// The body.
    #[must_use]
    pub const fn body(&self) -> &Body {
        &self.body
    }

    /// The content type of an outcome that a sealing layer wrote. Only a process with the seal key can read it.
    pub const SEALED: &str = "application/vnd.semel.sealed";

    /// True for an outcome that a sealing layer wrote. An HTTP answer is never mistaken for one, since it has a status.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.head().is_some_and(|head| {
            head.status.is_none() && head.content_type.as_deref() == Some(Self::SEALED)
        })
    }

    /// About how many bytes this outcome takes up.
    #[must_use]
    pub fn size(&self) -> usize {
        let body = match &self.body {
            Body::Kept(bytes) => bytes.len(),
            Body::Omitted { .. } => 0,
        };
        size_of::<Self>() + body + self.extra.as_ref().map_or(0, |extra| extra.size())
    }

    /// This outcome within `limit` bytes: as it is, or else with its body omitted and long texts cut.
    /// An operation that is done can always be recorded.
    #[must_use]
    pub fn within(self: Arc<Self>, limit: usize) -> Arc<Self> {
        if self.size() <= limit {
            return self;
        }
        let mut outcome = Arc::unwrap_or_clone(self);
        if let Body::Kept(bytes) = &outcome.body {
            outcome.body = Body::Omitted { length: bytes.len() as u64 };
        }
        if outcome.size() > limit
            && let Some(extra) = &mut outcome.extra
        {
            extra.cut();
        }
        Arc::new(outcome)
    }

    /// What is left of a failure's texts when the outcome is over its limit.
    pub const MAX_CUT_TEXT: usize = 256;

    /// The most an outcome takes up after [`Outcome::within`] has cut all it can.
    pub const MAX_CUT_BYTES: usize =
        size_of::<Self>() + size_of::<Extra>() + 2 * Self::MAX_CUT_TEXT;

    pub(crate) fn from_parts(failure: Option<Failure>, head: Head, body: Body) -> Self {
        let extra = Extra { failure, head };
        Self { extra: (extra != Extra::default()).then(|| Box::new(extra)), body }
    }
}

impl Extra {
    fn size(&self) -> usize {
        let failure = self.failure.as_ref().map_or(0, |f| f.kind.len() + f.message.len());
        let headers = self.head.headers.iter().chain(&self.head.trailers);
        let headers: usize =
            headers.map(|h| size_of::<Header>() + h.name.len() + h.value.len()).sum();
        let content_type = self.head.content_type.as_ref().map_or(0, String::len);
        size_of::<Self>() + failure + headers + content_type
    }

    fn cut(&mut self) {
        self.head.headers = Vec::new();
        self.head.trailers = Vec::new();
        self.head.content_type = None;
        if let Some(failure) = &mut self.failure {
            cut(&mut failure.kind, Outcome::MAX_CUT_TEXT);
            cut(&mut failure.message, Outcome::MAX_CUT_TEXT);
        }
    }
}

/// Makes a new text, so that the memory of the long one is freed.
fn cut(text: &mut String, max: usize) {
    *text = text[..text.floor_char_boundary(max)].to_owned();
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("success", &self.is_success())
            .field("status", &self.head().and_then(|head| head.status))
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Omitted { length } => write!(f, "{length} bytes, omitted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_over_the_limit_loses_its_body_and_nothing_else() {
        let head = Head { status: Some(201), ..Head::default() };
        let large = Arc::new(Outcome::success(vec![7; 10_000]).with_head(head.clone()));
        let kept = large.within(1_000);
        assert_eq!(kept.body(), &Body::Omitted { length: 10_000 });
        assert_eq!(kept.head(), Some(&head));
    }

    #[test]
    fn a_failure_with_an_endless_message_still_fits() {
        let long = Arc::new(Outcome::failure("declined", "ö".repeat(100_000)));
        let kept = long.within(1_000);
        assert!(kept.size() <= 1_000);
        assert_eq!(kept.as_failure().unwrap().kind, "declined");
    }

    #[test]
    fn a_body_that_does_not_decode_is_not_quoted() {
        let error = Outcome::success("\"canary\"").decode::<u32>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
}
