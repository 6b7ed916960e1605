//! The names of our header fields, and which of the handler's a replay may carry.

use http::{HeaderMap, HeaderName, HeaderValue, Response, header};

use crate::problem;

/// What the client sends: one key per operation.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// `true` on an answer that was not made by a run for this request.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// `false` on an answer whose operation is done but could not be recorded: a retry may run it again.
pub const IDEMPOTENCY_STORED: HeaderName = HeaderName::from_static("idempotency-stored");
/// `omitted` on a replay whose body was not kept.
pub const IDEMPOTENCY_BODY: HeaderName = HeaderName::from_static("idempotency-body");
/// Beside `Idempotency-Body: omitted`: how many bytes the body had that was not kept.
pub const IDEMPOTENCY_BODY_LENGTH: HeaderName = HeaderName::from_static("idempotency-body-length");
/// On every answer that semel itself gives: the name of the situation. An outer semel believes a name that
/// it knows, on the status that this name has, and does not record such an answer. Only
/// `upstream-head-too-large` is recorded: the upstream answered, and the operation may have run.
pub const SEMEL_STATUS: HeaderName = HeaderName::from_static("semel-status");
/// Read by the Stripe SDKs, which otherwise retry every 409.
pub const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

/// By these a client asks for another method than the one it sends; they are part of what is asked.
pub const METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];

/// What scripts in a browser may read. A CORS layer outside that exposes a list of its own needs these
/// in it.
pub const EXPOSED: &str = "Idempotency-Key, Idempotent-Replayed, Idempotency-Stored, Idempotency-Body, \
     Idempotency-Body-Length, Semel-Status, Stripe-Should-Retry, Retry-After";

/// Kept with an outcome. Everything else is the first caller's alone.
pub(crate) const REPLAYED_HEADERS: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::CONTENT_LANGUAGE,
    header::CONTENT_ENCODING,
    header::LOCATION,
    header::CONTENT_LOCATION,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
];

/// Shown also to those who waited for an answer that is not recorded.
pub(crate) const UNRECORDED_HEADERS: [HeaderName; 3] =
    [header::RETRY_AFTER, SEMEL_STATUS, STRIPE_SHOULD_RETRY];

/// Never kept, whatever a policy says: credentials, the connection's own, and what is true once.
pub(crate) fn is_forbidden(name: &HeaderName) -> bool {
    const FORBIDDEN: [HeaderName; 14] = [
        header::SET_COOKIE,
        header::AUTHORIZATION,
        header::WWW_AUTHENTICATE,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::CONNECTION,
        header::UPGRADE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::CONTENT_LENGTH,
        header::CACHE_CONTROL,
        header::DATE,
        header::ALT_SVC,
    ];
    let text = name.as_str();
    FORBIDDEN.contains(name)
        || text == "keep-alive"
        || text == "set-cookie2"
        || text.starts_with("access-control-")
        || text.starts_with("proxy-")
        || RESERVED.contains(name)
        || [IDEMPOTENCY_KEY, SEMEL_STATUS, STRIPE_SHOULD_RETRY].contains(name)
}

/// What only we may say of an answer.
const RESERVED: [HeaderName; 4] =
    [IDEMPOTENT_REPLAYED, IDEMPOTENCY_STORED, IDEMPOTENCY_BODY, IDEMPOTENCY_BODY_LENGTH];

/// What [`IDEMPOTENCY_BODY`] says.
const OMITTED: &str = "omitted";

/// Takes our header fields off an answer of the inner service: what is recorded, and what callers are told of
/// it, is not the inner service's to say. `Semel-Status` stays where [`problem::inner_problem`] believes it.
///
/// Answers the length of the body that the answer calls omitted. Only an inner semel has reason to say
/// so, and only an answer without a body can be one: the caller has to look.
pub(crate) fn strip_semel_headers<B>(answer: &mut Response<B>) -> Option<u64> {
    if problem::inner_problem(answer).is_none() {
        answer.headers_mut().remove(SEMEL_STATUS);
    }
    let headers = answer.headers_mut();
    let is_omitted = headers.get(IDEMPOTENCY_BODY).is_some_and(|body| body == OMITTED);
    let length = headers.get(IDEMPOTENCY_BODY_LENGTH).and_then(|length| length.to_str().ok());
    let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let length = length.filter(digits).and_then(|text| text.parse().ok()).unwrap_or_default();
    for name in RESERVED {
        headers.remove(name);
    }
    is_omitted.then_some(length)
}

/// Takes our header fields out of the trailers of an answer.
pub(crate) fn strip_semel_trailers(trailers: &mut HeaderMap) {
    for name in RESERVED.iter().chain([&SEMEL_STATUS, &IDEMPOTENCY_KEY]) {
        trailers.remove(name);
    }
}

/// Says that the body of this answer was not kept. A length of 0 is one that is not known.
pub(crate) fn mark_omitted(headers: &mut HeaderMap, length: u64) {
    headers.insert(IDEMPOTENCY_BODY, HeaderValue::from_static(OMITTED));
    if length > 0 {
        headers.insert(IDEMPOTENCY_BODY_LENGTH, length.into());
    }
    // An empty body is not valid gzip: some clients fail to decode it, which hides the marker.
    headers.remove(header::CONTENT_ENCODING);
}
