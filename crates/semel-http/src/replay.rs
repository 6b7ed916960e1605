//! From an answer to an outcome, and back.

use std::{error::Error as StdError, fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use semel_core::{Body, Ending, Head, Header, Outcome, Verdict, WorkError};

use crate::{
    RoutePolicy,
    body::{BodyMemory, ResponseBody, WholeBody},
    budget::BufferBudget,
    header::{
        IDEMPOTENT_REPLAYED, REPLAYED_HEADERS, UNRECORDED_HEADERS, is_forbidden, mark_omitted,
    },
    problem::{self, Problem, UPSTREAM_HEAD_TOO_LARGE},
    verdict,
};

/// An answer that ends the attempt without being recorded. Those who waited for it get it too.
#[derive(Debug)]
pub(crate) struct UnrecordedAnswer(pub(crate) Arc<Outcome>);

impl fmt::Display for UnrecordedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the handler answered {}", status_of(&self.0).as_u16())
    }
}

impl StdError for UnrecordedAnswer {}

/// What is kept of an answer, before its body is known.
pub(crate) struct OutcomeDraft {
    ending: Ending,
    status: StatusCode,
    head: Head,
}

impl OutcomeDraft {
    pub(crate) fn of<B>(answer: &Response<B>, policy: &RoutePolicy) -> Self {
        let (status, ending) = (answer.status(), verdict::ending(answer, policy));
        // A failure of ours that is recorded is replayed as ours.
        let passes_on = ending != Ending::Final
            || problem::inner_problem(answer) == Some(UPSTREAM_HEAD_TOO_LARGE);
        let keeps = |name: &HeaderName| {
            REPLAYED_HEADERS.contains(name)
                || policy.keep_headers.contains(name)
                || (passes_on && UNRECORDED_HEADERS.contains(name))
        };
        let headers = answer.headers().iter().filter(|(name, _)| keeps(name)).map(line).collect();
        let head = Head { status: Some(status.as_u16()), headers, ..Head::default() };
        Self { ending, status, head }
    }

    /// What the answer means, with nothing of it.
    pub(crate) fn bare<B>(answer: &Response<B>, policy: &RoutePolicy) -> Self {
        let (status, ending) = (answer.status(), verdict::ending(answer, policy));
        Self { ending, status, head: Head::default() }
    }

    pub(crate) fn trailers(mut self, trailers: Option<&HeaderMap>) -> Self {
        let kept = trailers.into_iter().flatten().filter(|(name, _)| !is_forbidden(name));
        self.head.trailers.extend(kept.map(line));
        self
    }

    /// The answer broke off: unless the handler has said that nothing happened, nobody can say.
    pub(crate) fn broken_off(self) -> Verdict {
        let why = "the answer broke off";
        match self.ending {
            Ending::NoEffect => Verdict::NoEffect(WorkError::no_effect(why)),
            Ending::Final | Ending::Retry | Ending::Indeterminate => {
                Verdict::Indeterminate(WorkError::indeterminate(why))
            }
        }
    }

    /// What the answer means, with what may be shown of it again.
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
pub(crate) fn for_record(whole: &WholeBody) -> Body {
    Body::Kept(match whole.memory {
        BodyMemory::Own => whole.bytes.clone(),
        // It may be a slice of a much larger buffer, which the record would keep alive.
        BodyMemory::Foreign => Bytes::copy_from_slice(&whole.bytes),
    })
}

fn line((name, value): (&HeaderName, &HeaderValue)) -> Header {
    Header { name: name.as_str().to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) }
}

/// The recorded answer, byte for byte.
pub(crate) fn response<B>(
    outcome: &Outcome,
    budget: &BufferBudget,
) -> Result<Response<ResponseBody<B>>, Problem> {
    let bytes = match outcome.body() {
        Body::Kept(bytes) => bytes.clone(),
        Body::Omitted { .. } => Bytes::new(),
    };
    let mut permit = budget.permit();
    if !permit.grow(bytes.len()) {
        return Err(Problem::overloaded());
    }
    let trailers = outcome.head().and_then(|head| map(&head.trailers)).map(Box::new);
    let mut response = Response::new(());
    *response.status_mut() = status_of(outcome);
    let headers = response.headers_mut();
    if let Some(head) = outcome.head() {
        // Of an outcome that an operator gave.
        if let Some(Ok(media_type)) = head.content_type.as_deref().map(HeaderValue::from_str) {
            headers.insert(header::CONTENT_TYPE, media_type);
        }
        for (name, value) in lines(&head.headers) {
            headers.append(name, value);
        }
    }
    if let Some(trailers) = &trailers {
        for name in trailers.keys() {
            headers.append(header::TRAILER, name.clone().into());
        }
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    if let Body::Omitted { length } = outcome.body() {
        mark_omitted(headers, *length);
    }
    Ok(response.map(|()| {
        ResponseBody::whole(WholeBody { bytes, trailers, permit, memory: BodyMemory::Own })
    }))
}

fn map(lines_of: &[Header]) -> Option<HeaderMap> {
    (!lines_of.is_empty()).then(|| lines(lines_of).collect())
}

/// What was a header once is one again; a record of somebody else's making may hold other things.
fn lines(headers: &[Header]) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    headers.iter().filter_map(|header| {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_maybe_shared(header.value.clone()).ok()?))
    })
}

fn status_of(outcome: &Outcome) -> StatusCode {
    let status = outcome.head().and_then(|head| head.status);
    let fallback = match outcome.as_failure() {
        None => StatusCode::OK,
        Some(failure) => verdict::status(&failure.kind),
    };
    status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(fallback)
}
