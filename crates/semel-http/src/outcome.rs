//! Turns a handler's answer into the outcome that is recorded for its key.

use std::{error::Error as StdError, fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use semel_core::{Body, Ending, Head, Header, Outcome, Verdict, WorkError};

use crate::{
    RoutePolicy,
    body::{BodyMemory, WholeBody},
    header::{REPLAYED_HEADERS, UNRECORDED_HEADERS, is_forbidden},
    problem::{self, UPSTREAM_HEAD_TOO_LARGE},
    replay::status_of,
    verdict,
};

/// An answer that is not recorded. Callers that waited for its run get it too.
#[derive(Debug)]
pub(crate) struct UnrecordedAnswer(pub(crate) Arc<Outcome>);

impl fmt::Display for UnrecordedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the handler answered {}", status_of(&self.0).as_u16())
    }
}

impl StdError for UnrecordedAnswer {}

/// The outcome of an answer, before its body is known.
pub(crate) struct OutcomeDraft {
    ending: Ending,
    status: StatusCode,
    head: Head,
}

impl OutcomeDraft {
    pub(crate) fn of<B>(answer: &Response<B>, policy: &RoutePolicy) -> Self {
        let (status, ending) = (answer.status(), verdict::ending(answer, policy));
        // A problem of semel that is recorded is replayed with the headers of a problem.
        let keeps_problem_headers = ending != Ending::Final
            || problem::inner_problem(answer) == Some(UPSTREAM_HEAD_TOO_LARGE);
        let keeps = |name: &HeaderName| {
            REPLAYED_HEADERS.contains(name)
                || policy.keep_headers.contains(name)
                || (keeps_problem_headers && UNRECORDED_HEADERS.contains(name))
        };
        let headers =
            answer.headers().iter().filter(|(name, _)| keeps(name)).map(recorded_header).collect();
        let head = Head { status: Some(status.as_u16()), headers, ..Head::default() };
        Self { ending, status, head }
    }

    /// The verdict on the answer, without its headers.
    pub(crate) fn bare<B>(answer: &Response<B>, policy: &RoutePolicy) -> Self {
        let (status, ending) = (answer.status(), verdict::ending(answer, policy));
        Self { ending, status, head: Head::default() }
    }

    pub(crate) fn trailers(mut self, trailers: Option<&HeaderMap>) -> Self {
        let kept = trailers.into_iter().flatten().filter(|(name, _)| !is_forbidden(name));
        self.head.trailers.extend(kept.map(recorded_header));
        self
    }

    /// The verdict on an answer whose body broke off. Its effect cannot be known, unless the handler said that
    /// there is none.
    pub(crate) fn broken_off(self) -> Verdict {
        let reason = "the answer broke off";
        match self.ending {
            Ending::NoEffect => Verdict::NoEffect(WorkError::no_effect(reason)),
            Ending::Final | Ending::Retry | Ending::Indeterminate => {
                Verdict::Indeterminate(WorkError::indeterminate(reason))
            }
        }
    }

    /// The verdict on the answer, with the outcome to record.
    pub(crate) fn verdict(self, body: Body) -> Verdict {
        let class = verdict::class(self.status);
        let outcome = if self.status.is_client_error() || self.status.is_server_error() {
            Outcome::failure(class.as_str(), "")
        } else {
            Outcome::success(Bytes::new())
        };
        let outcome = outcome.with_head(self.head).with_body(body);
        let error = |make: fn(UnrecordedAnswer) -> WorkError, outcome| {
            make(UnrecordedAnswer(Arc::new(outcome))).class(class)
        };
        match self.ending {
            Ending::Final => Verdict::Final(outcome),
            Ending::NoEffect => Verdict::NoEffect(error(WorkError::no_effect, outcome)),
            Ending::Retry => Verdict::Retry(error(WorkError::retry, outcome)),
            Ending::Indeterminate => {
                Verdict::Indeterminate(error(WorkError::indeterminate, outcome))
            }
        }
    }
}

/// The body as the record keeps it.
pub(crate) fn body_for_record(whole: &WholeBody) -> Body {
    Body::Kept(match whole.memory {
        BodyMemory::Own => whole.bytes.clone(),
        // The bytes may be a slice of a much larger buffer, which the record would keep alive.
        BodyMemory::Foreign => Bytes::copy_from_slice(&whole.bytes),
    })
}

fn recorded_header((name, value): (&HeaderName, &HeaderValue)) -> Header {
    Header { name: name.as_str().to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) }
}
