//! What a response of the handler means for the event.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{
        CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_TYPE, ETAG,
        LAST_MODIFIED, LINK, LOCATION, RETRY_AFTER,
    },
    response::Parts,
};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use semel::{Body, ErrorClass, Head, Header, Outcome, Policy, WorkError};
use semel_consumer::RetryAfter;

use super::inner_semel;

/// The headers that are recorded with an outcome, beside the content type.
const RECORDED: [HeaderName; 7] =
    [CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, ETAG, LAST_MODIFIED, LINK, LOCATION];
/// A body that has not ended after so many bytes is taken for one without an end.
const ENDLESS: u64 = 64 * 1024 * 1024;
/// The longest pause that a handler may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// What a response means for the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The outcome.
    Success,
    /// A failure that no retry would change.
    Final,
    /// The handler did nothing; the event is tried again.
    NoEffect,
    /// The handler may have done something; the event is tried again.
    Retry,
}

/// What a response with this head means. `permanent` are the statuses that no retry would change.
pub(super) fn meaning(head: &Parts, permanent: &[StatusCode]) -> Meaning {
    let status = head.status;
    if let Some((_, meaning)) = inner_semel::problem(head) {
        return meaning;
    }
    match status {
        _ if status.is_success() => Meaning::Success,
        _ if permanent.contains(&status) => Meaning::Final,
        // The request was refused before any work.
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => Meaning::NoEffect,
        _ => Meaning::Retry,
    }
}

/// The error for a response that is no success. It shows the status only: the body may quote the payload.
pub(super) fn error(head: &Parts, meaning: &Meaning) -> WorkError {
    let status = head.status;
    let mut what = format!("the handler answered {status}");
    if let Some((name, _)) = inner_semel::problem(head) {
        what.push_str(&format!(" (Semel-Status: {name})"));
    } else if status.is_redirection() {
        what.push_str("; redirects are not followed: set --handler to where the endpoint is");
    }
    let error = RetryAfter { delay: retry_after(&head.headers), error: what.clone().into() };
    let error = match meaning {
        Meaning::Final => WorkError::failure(format!("http_{}", status.as_u16()), what),
        Meaning::NoEffect => WorkError::no_effect(error),
        Meaning::Retry | Meaning::Success => WorkError::retry(error),
    };
    error.class(class(status))
}

const fn class(status: StatusCode) -> ErrorClass {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorClass::Unauthorised,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => ErrorClass::Timeout,
        StatusCode::BAD_GATEWAY => ErrorClass::Network,
        StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            ErrorClass::Transient
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => ErrorClass::NotFound,
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNSUPPORTED_MEDIA_TYPE
        | StatusCode::UNPROCESSABLE_ENTITY => ErrorClass::Validation,
        _ => ErrorClass::Unknown,
    }
}

/// The pause that `Retry-After` asks for, in seconds or as a date. Nothing if it cannot be read.
fn retry_after(headers: &HeaderMap) -> Duration {
    let text = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let text = text.trim();
    let pause = text.parse().map(Duration::from_secs).ok().or_else(|| {
        let at = httpdate::parse_http_date(text).ok()?;
        at.duration_since(SystemTime::now()).ok()
    });
    pause.unwrap_or_default().min(LONGEST_PAUSE)
}

/// The outcome that a successful response is recorded as. An error says why its body could not be read.
pub(super) async fn outcome(head: &Parts, body: Incoming) -> Result<Outcome, String> {
    let body = read(head, body).await?;
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let recorded = RECORDED.iter().flat_map(|name| {
        let header = |value: &http::HeaderValue| Header {
            name: name.as_str().to_owned(),
            value: Bytes::copy_from_slice(value.as_bytes()),
        };
        head.headers.get_all(name).iter().map(header)
    });
    let recorded_head = Head {
        status: Some(head.status.as_u16()),
        content_type: head.headers.get(CONTENT_TYPE).map(text),
        headers: recorded.collect(),
        trailers: Vec::new(),
    };
    Ok(Outcome::success("").with_head(recorded_head).with_body(body))
}

/// Reads the body to its end. One that is too large to be recorded is counted, and not kept.
async fn read(head: &Parts, mut body: Incoming) -> Result<Body, String> {
    let limit = Policy::MAX_OUTCOME_BYTES as u64;
    let (mut kept, mut length) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "its response broke off".to_owned())?;
        let Some(data) = frame.data_ref() else { continue };
        length += data.len() as u64;
        if length > ENDLESS && !head.headers.contains_key(CONTENT_LENGTH) {
            return Err(format!("its response has more than {} MiB and no end", ENDLESS >> 20));
        }
        match length <= limit {
            true => kept.extend_from_slice(data),
            false => kept = BytesMut::new(),
        }
    }
    Ok(if length <= limit { Body::Kept(kept.freeze()) } else { Body::Omitted { length } })
}

#[cfg(test)]
mod tests {
    use http::Response;
    use semel_service::settings::WorkerConfig;

    use super::*;

    fn head(status: u16, headers: &[(&str, &str)]) -> Parts {
        let response = Response::builder().status(status);
        let response = headers.iter().fold(response, |it, (name, value)| it.header(*name, *value));
        response.body(()).unwrap().into_parts().0
    }

    fn of(status: u16, headers: &[(&str, &str)]) -> Meaning {
        meaning(&head(status, headers), &WorkerConfig::PERMANENT_STATUSES)
    }

    #[test]
    fn statuses_mean_what_is_published() {
        for status in [200, 201, 202, 204] {
            assert_eq!(of(status, &[]), Meaning::Success, "{status}");
        }
        for status in [400, 410, 413, 415, 422] {
            assert_eq!(of(status, &[]), Meaning::Final, "{status}");
        }
        for status in [401, 403, 425, 429] {
            assert_eq!(of(status, &[]), Meaning::NoEffect, "{status}");
        }
        for status in [301, 302, 304, 307, 404, 405, 408, 409, 500, 502, 503, 504] {
            assert_eq!(of(status, &[]), Meaning::Retry, "{status}");
        }
        let own = [StatusCode::NOT_FOUND];
        assert_eq!(meaning(&head(404, &[]), &own), Meaning::Final);
        assert_eq!(meaning(&head(422, &[]), &own), Meaning::Retry);
    }

    #[test]
    fn a_problem_of_an_inner_semel_is_no_outcome() {
        let of = |status, name| of(status, &[("semel-status", name)]);
        assert_eq!(of(409, "in-progress"), Meaning::NoEffect);
        assert_eq!(of(422, "fingerprint-mismatch"), Meaning::NoEffect);
        assert_eq!(of(503, "store-unavailable"), Meaning::NoEffect);
        assert_eq!(of(409, "outcome-unknown"), Meaning::Retry);
        assert_eq!(of(504, "upstream-timeout"), Meaning::Retry);
        assert_eq!(of(502, "upstream-head-too-large"), Meaning::Final);
        // The handler's own header.
        assert_eq!(of(200, "in-progress"), Meaning::Success);
        assert_eq!(of(500, "in-progress"), Meaning::Retry);
        assert_eq!(of(409, "no-such-name"), Meaning::Retry);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let pause = |value| retry_after(&head(503, &[("retry-after", value)]).headers);
        assert_eq!(pause("2"), Duration::from_secs(2));
        assert_eq!(pause(" 0 "), Duration::ZERO);
        assert_eq!(pause("999999999"), LONGEST_PAUSE);
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(30));
        assert!((28..=30).contains(&pause(later.leak()).as_secs()));
        for nothing in ["", "soon", "-5", "Thu, 01 Jan 1970 00:00:00 GMT"] {
            assert_eq!(pause(nothing), Duration::ZERO, "{nothing}");
        }
    }

    #[test]
    fn an_error_names_the_status_and_the_fix() {
        let text = |status, headers: &[_]| {
            let head = head(status, headers);
            error(&head, &Meaning::Retry).error().to_string()
        };
        assert_eq!(text(503, &[]), "the handler answered 503 Service Unavailable");
        assert!(text(302, &[("location", "http://canary/")]).contains("set --handler"));
        assert!(!text(302, &[("location", "http://canary/")]).contains("canary"));
        assert!(text(409, &[("semel-status", "in-progress")]).contains("in-progress"));
    }
}
