//! The names of our header fields, and which of the handler's a replay may carry.

use http::{HeaderName, header};

/// What the client sends: one key per operation.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// `true` on an answer that was not made by a run for this request.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// `false` on an answer whose operation is done but could not be recorded: a retry may run it again.
pub const IDEMPOTENCY_STORED: HeaderName = HeaderName::from_static("idempotency-stored");
/// `omitted` on a replay whose body was not kept.
pub const IDEMPOTENCY_BODY: HeaderName = HeaderName::from_static("idempotency-body");
/// On every answer that semel itself gives: the name of the situation. An outer semel takes such an
/// answer as one without effect and never records it.
pub const SEMEL_STATUS: HeaderName = HeaderName::from_static("semel-status");
/// Read by the Stripe SDKs, which otherwise retry every 409.
pub const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

/// What scripts in a browser may read. A CORS layer outside that exposes a list of its own needs these
/// in it.
pub const EXPOSED: &str = "Idempotency-Key, Idempotent-Replayed, Idempotency-Stored, Idempotency-Body, Semel-Status, \
     Stripe-Should-Retry, Retry-After";

/// Kept with an outcome. Everything else is the first caller's alone.
pub(crate) const KEPT: [HeaderName; 8] = [
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
pub(crate) const PASSED_ON: [HeaderName; 3] =
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
        || [IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, IDEMPOTENCY_STORED, IDEMPOTENCY_BODY]
            .contains(name)
        || [SEMEL_STATUS, STRIPE_SHOULD_RETRY].contains(name)
}
