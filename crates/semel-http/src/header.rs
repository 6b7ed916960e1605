//! The names of semel's headers, and which headers of the handler a replay may carry.

use http::{HeaderMap, HeaderName, HeaderValue, Response, header};

use crate::problem;

/// The key that the client sends: one per operation.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// `true` on an answer that comes from another request's run.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// `false` on an answer whose operation is done but could not be recorded: a retry may run it again.
pub const IDEMPOTENCY_STORED: HeaderName = HeaderName::from_static("idempotency-stored");
/// `omitted` on a replay whose body was not kept.
pub const IDEMPOTENCY_BODY: HeaderName = HeaderName::from_static("idempotency-body");
/// Beside `Idempotency-Body: omitted`: the number of bytes of the body that was not kept.
pub const IDEMPOTENCY_BODY_LENGTH: HeaderName = HeaderName::from_static("idempotency-body-length");
/// The name of the problem, on every answer of semel itself. An outer semel accepts a name that it knows, on
/// the status that this name has, and does not record such an answer. Only `upstream-head-too-large` is
/// recorded: the upstream answered, and the operation may have run.
pub const SEMEL_STATUS: HeaderName = HeaderName::from_static("semel-status");
/// Read by the Stripe SDKs, which otherwise retry every 409.
pub const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

/// Headers with which a client overrides the method that it sends. They are part of the fingerprint.
pub const METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];

/// The headers that scripts in a browser may read. An outer CORS layer with a list of exposed headers needs
/// these in its list.
pub const EXPOSED: &str = "Idempotency-Key, Idempotent-Replayed, Idempotency-Stored, Idempotency-Body, \
     Idempotency-Body-Length, Semel-Status, Stripe-Should-Retry, Retry-After";

/// Headers that are recorded with an outcome. All others go to the first caller only.
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

/// Headers of an answer that is not recorded, which callers that waited for it get too.
pub(crate) const UNRECORDED_HEADERS: [HeaderName; 3] =
    [header::RETRY_AFTER, SEMEL_STATUS, STRIPE_SHOULD_RETRY];

/// Headers that no policy can record: credentials, headers of one connection, and headers of one answer.
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

/// Headers that only this layer may set on an answer.
const RESERVED: [HeaderName; 4] =
    [IDEMPOTENT_REPLAYED, IDEMPOTENCY_STORED, IDEMPOTENCY_BODY, IDEMPOTENCY_BODY_LENGTH];

/// The value of [`IDEMPOTENCY_BODY`].
const OMITTED: &str = "omitted";

/// Removes semel's headers from an answer of the inner service, which must not set them. `Semel-Status` stays if
/// [`problem::inner_problem`] accepts it.
///
/// Returns the length of the body that the answer declares as omitted. Only an inner semel declares that, and
/// only for an answer without a body: the caller has to check that the body is empty.
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

/// Removes semel's headers from the trailers of an answer.
pub(crate) fn strip_semel_trailers(trailers: &mut HeaderMap) {
    for name in RESERVED.iter().chain([&SEMEL_STATUS, &IDEMPOTENCY_KEY]) {
        trailers.remove(name);
    }
}

/// Marks an answer whose body was not kept. A length of 0 means that it is not known.
pub(crate) fn mark_omitted(headers: &mut HeaderMap, length: u64) {
    headers.insert(IDEMPOTENCY_BODY, HeaderValue::from_static(OMITTED));
    if length > 0 {
        headers.insert(IDEMPOTENCY_BODY_LENGTH, length.into());
    }
    // An empty body is not valid gzip. Clients that fail to decode it would not see the marker.
    headers.remove(header::CONTENT_ENCODING);
}
