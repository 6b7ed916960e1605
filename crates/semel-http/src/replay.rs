//! Turns a recorded outcome back into an answer.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use semel_core::{Body, Header, Outcome};

use crate::{
    body::{BodyMemory, ResponseBody, WholeBody},
    budget::BufferBudget,
    header::{IDEMPOTENT_REPLAYED, mark_omitted},
    problem::Problem,
    verdict,
};

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
    let trailers = outcome.head().and_then(|head| header_map(&head.trailers)).map(Box::new);
    let mut response = Response::new(());
    *response.status_mut() = status_of(outcome);
    let headers = response.headers_mut();
    if let Some(head) = outcome.head() {
        // Only outcomes that an operator set have a content type here.
        if let Some(Ok(media_type)) = head.content_type.as_deref().map(HeaderValue::from_str) {
            headers.insert(header::CONTENT_TYPE, media_type);
        }
        for (name, value) in valid_headers(&head.headers) {
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

fn header_map(headers: &[Header]) -> Option<HeaderMap> {
    (!headers.is_empty()).then(|| valid_headers(headers).collect())
}

/// Recorded headers that HTTP allows. A record that another program wrote may hold others.
fn valid_headers(headers: &[Header]) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    headers.iter().filter_map(|header| {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_maybe_shared(header.value.clone()).ok()?))
    })
}

pub(crate) fn status_of(outcome: &Outcome) -> StatusCode {
    let status = outcome.head().and_then(|head| head.status);
    let fallback = match outcome.as_failure() {
        None => StatusCode::OK,
        Some(failure) => verdict::status(&failure.kind),
    };
    status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(fallback)
}
