//! The problems that semel answers with: one type per situation, each with a page in `docs/problems`.

use std::{borrow::Cow, error::Error as StdError, io, iter::successors, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use semel_core::{Ending, Error, ErrorKind, RunError};
use serde::Serialize;

use crate::{
    RoutePolicy,
    header::{SEMEL_STATUS, STRIPE_SHOULD_RETRY},
    telemetry,
};

/// Problems of operations that may have taken effect. An outer semel must not treat them as without effect.
pub(crate) const MAY_HAVE_TAKEN_EFFECT: [&str; 4] =
    [ATTEMPT_FAILED, OUTCOME_UNKNOWN, UPSTREAM_FAILED, UPSTREAM_TIMEOUT];

const ATTEMPT_FAILED: &str = "attempt-failed";
const FINGERPRINT_MISMATCH: &str = "fingerprint-mismatch";
const OUTCOME_UNKNOWN: &str = "outcome-unknown";
const UPSTREAM_FAILED: &str = "upstream-failed";
const UPSTREAM_TIMEOUT: &str = "upstream-timeout";
/// The only problem that is recorded as an outcome: the upstream answered, and a retry would get the same answer.
pub(crate) const UPSTREAM_HEAD_TOO_LARGE: &str = "upstream-head-too-large";

/// The prefix of `type`, in the extensions of a request if it is not [`BASE`].
#[derive(Clone)]
pub(crate) struct ProblemBase(
    #[cfg_attr(not(feature = "axum"), expect(dead_code, reason = "read by the extractor"))]
    pub(crate) Arc<str>,
);

/// The default prefix of `type`.
pub(crate) const BASE: &str = "urn:semel:problem:";

/// A problem that semel answers with. Nothing ran for such a request, with these exceptions: a run may end in
/// `attempt-failed`, behind a proxy in `upstream-failed`, `upstream-timeout` or `upstream-head-too-large`, and on
/// a hold route in `outcome-unknown`.
///
/// The layer makes its own problems. The public functions are for proxies behind the layer, so that their
/// failures look the same. Each problem has a page in `docs/problems`.
#[derive(Clone, Debug)]
pub struct Problem {
    pub(crate) name: &'static str,
    status: StatusCode,
    title: &'static str,
    detail: Cow<'static, str>,
    /// The parts in which two requests differ, for a mismatch.
    differs: Vec<&'static str>,
    retry: RetryAdvice,
}

/// Whether the same request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RetryAdvice {
    Never,
    Now,
    After(Duration),
}

macro_rules! problems {
    ($($(#[$doc:meta])* $vis:vis $function:ident($name:expr, $status:ident, $retry:expr, $title:literal, $detail:literal);)*) => {
        impl Problem {
            $($(#[$doc])* #[must_use] $vis const fn $function() -> Self {
                Self {
                    name: $name,
                    status: StatusCode::$status,
                    title: $title,
                    detail: Cow::Borrowed($detail),
                    differs: Vec::new(),
                    retry: $retry,
                }
            })*
        }

        /// The name of every problem, and its status.
        const STATUSES: &[(&str, StatusCode)] = &[$(($name, StatusCode::$status)),*];
        /// Every problem, for the tests of their pages.
        #[cfg(test)]
        const ALL: &[fn() -> Problem] = &[$(Problem::$function),*];
    };
}

const SOON: RetryAdvice = RetryAdvice::After(Duration::from_secs(1));

/// The longest `Retry-After` of `in-progress`. The lease ends when a lost owner's key is free. Most runs end
/// long before that, and a request that comes too early just waits for the run again.
const IN_PROGRESS_RETRY: Duration = Duration::from_secs(3);

problems! {
    pub(crate) key_missing("key-missing", BAD_REQUEST, RetryAdvice::Never,
        "Idempotency-Key is missing",
        "this operation needs an Idempotency-Key header: send one fresh key per operation, and the same key when you retry it");
    pub(crate) key_invalid("key-invalid", BAD_REQUEST, RetryAdvice::Never,
        "Idempotency-Key is not valid",
        "send one key of 1 to 255 visible ASCII characters");
    pub(crate) principal_missing("principal-missing", UNAUTHORIZED, RetryAdvice::Never,
        "The caller is not authenticated",
        "a request with an Idempotency-Key needs an authenticated caller");
    pub(crate) replay_forbidden("replay-forbidden", FORBIDDEN, RetryAdvice::Never,
        "The recorded answer may not be shown",
        "the operation is done, but this caller may no longer see its outcome");
    pub(crate) body_timeout("body-timeout", REQUEST_TIMEOUT, RetryAdvice::Now,
        "The request body did not arrive in time",
        "nothing ran; send the request again");
    pub(crate) body_unreadable("body-unreadable", BAD_REQUEST, RetryAdvice::Now,
        "The request body broke off",
        "nothing ran; send the request again");
    pub(crate) body_too_large("body-too-large", PAYLOAD_TOO_LARGE, RetryAdvice::Never,
        "The request body is too large",
        "nothing ran; send a smaller body");
    pub(crate) fingerprint_mismatch(FINGERPRINT_MISMATCH, CONFLICT, RetryAdvice::Never,
        "Idempotency-Key is already used",
        "this key was used for another request; use a new key for a new operation, or repeat the first request unchanged");
    pub(crate) in_progress("in-progress", CONFLICT, SOON,
        "A request is outstanding for this Idempotency-Key",
        "the operation is still running; send the same request again later");
    pub(crate) outcome_unknown(OUTCOME_UNKNOWN, CONFLICT, RetryAdvice::Never,
        "The outcome is not known",
        "it is not known whether the operation took effect; do not send it again: an operator has to resolve it");
    pub(crate) attempts_exhausted("attempts-exhausted", CONFLICT, RetryAdvice::Never,
        "Out of attempts",
        "the operation was tried as often as its policy allows");
    pub(crate) erased("erased", GONE, RetryAdvice::Never,
        "The outcome was erased",
        "the operation was done and its outcome erased; it will not run again under this key");
    pub(crate) attempt_failed(ATTEMPT_FAILED, INTERNAL_SERVER_ERROR, SOON,
        "The attempt failed",
        "the operation ended without an answer and may have taken effect; send the same request again");
    pub(crate) store_unavailable("store-unavailable", SERVICE_UNAVAILABLE, SOON,
        "The idempotency store does not answer",
        "nothing ran; send the same request again later");
    pub(crate) store_full("store-full", SERVICE_UNAVAILABLE, SOON,
        "The idempotency store is full",
        "nothing ran; send the same request again later");
    pub(crate) shutting_down("shutting-down", SERVICE_UNAVAILABLE, SOON,
        "The service is shutting down",
        "nothing ran; send the same request again");
    pub(crate) overloaded("overloaded", SERVICE_UNAVAILABLE, SOON,
        "Too many bodies are held in memory",
        "nothing ran for this request; send it again later");
    /// No byte of the request left: the upstream took no connection.
    pub upstream_unreachable("upstream-unreachable", BAD_GATEWAY, SOON,
        "The upstream cannot be reached",
        "nothing ran; send the same request again later");
    /// The connection broke, or the answer was not valid HTTP, after bytes of the request had left.
    pub upstream_failed(UPSTREAM_FAILED, BAD_GATEWAY, SOON,
        "The upstream gave no answer",
        "the connection to the upstream broke and the operation may have taken effect; send the same request again");
    /// No answer came in time after bytes of the request had left.
    pub upstream_timeout(UPSTREAM_TIMEOUT, GATEWAY_TIMEOUT, SOON,
        "The upstream did not answer in time",
        "the operation may have taken effect, and may still do so; send the same request again");
    /// The head of the upstream's answer has more headers or bytes than a proxy takes. The operation ran: proxies
    /// put [`HandlerVerdict::Final`](crate::HandlerVerdict::Final) beside it, so that it is recorded.
    pub upstream_head_too_large(UPSTREAM_HEAD_TOO_LARGE, BAD_GATEWAY, RetryAdvice::Never,
        "The head of the upstream's answer is too large",
        "the upstream answered and the operation may have run; the answer has more headers than can be passed on, and a retry gets the same");
    /// No upstream is configured for this path.
    pub no_route("no-route", NOT_FOUND, RetryAdvice::Never,
        "No upstream serves this path",
        "nothing ran; the gateway has no route for this path and no default upstream");
    /// The target of the request is ambiguous: two readers could understand it differently.
    pub target_invalid("target-invalid", BAD_REQUEST, RetryAdvice::Never,
        "The target of the request is not valid",
        "nothing ran; send one Host header and a path without dot segments");
    /// `Connection` names a header that is meant for the upstream.
    pub connection_invalid("connection-invalid", BAD_REQUEST, RetryAdvice::Never,
        "The Connection header is not valid",
        "nothing ran; Connection names a header that is meant for the upstream, leave it out");
    /// A method that a reverse proxy does not serve.
    pub method_not_allowed("method-not-allowed", METHOD_NOT_ALLOWED, RetryAdvice::Never,
        "The method is not allowed",
        "nothing ran; CONNECT and TRACE are not served here");
    /// The end of the body cannot be known.
    pub length_required("length-required", LENGTH_REQUIRED, RetryAdvice::Never,
        "The length of the body is missing",
        "nothing ran; an HTTP/1.0 request of this method needs a Content-Length, be it 0");
}

impl Problem {
    /// The default prefix of `type`.
    pub const BASE: &str = BASE;

    /// Sets the detail text. It must not quote the request.
    #[must_use]
    pub fn detail(self, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    fn after(self, wait: Duration) -> Self {
        Self { retry: RetryAdvice::After(wait), ..self }
    }

    /// The problem for a request whose body could not be read: it broke off, or the server's own time limit
    /// passed.
    #[must_use]
    pub fn of_body(error: &(dyn StdError + 'static)) -> Self {
        let mut causes = successors(Some(error), |&error| error.source());
        let timed_out = causes.any(|cause| {
            cause.downcast_ref().is_some_and(|it: &io::Error| it.kind() == io::ErrorKind::TimedOut)
        });
        if timed_out { Self::body_timeout() } else { Self::body_unreadable() }
    }

    /// The problem for a run that returned no value.
    pub(crate) fn of(error: &RunError, policy: &RoutePolicy) -> Self {
        match error {
            RunError::Busy { retry_after } => {
                Self::in_progress().after((*retry_after).min(IN_PROGRESS_RETRY))
            }
            RunError::Mismatch => Self::mismatch(policy),
            error if is_unknown(error, policy) => Self::outcome_unknown(),
            RunError::Dead => Self::attempts_exhausted(),
            RunError::Gone => Self::erased(),
            RunError::Store(error) => Self::of_store(error),
            RunError::Retry(retry) if retry.ending == Ending::NoEffect => Self::overloaded()
                .detail("nothing ran: there was no place for this request in time"),
            RunError::Retry(retry) => Self::attempt_failed().after(retry.retry_after),
            _ => Self::attempt_failed(),
        }
    }

    /// The problem for a key that was used for another request, with the status that the policy sets.
    pub(crate) fn mismatch(policy: &RoutePolicy) -> Self {
        Self { status: policy.mismatch_status, ..Self::fingerprint_mismatch() }
    }

    /// Adds the names of the parts in which two requests differ.
    pub(crate) fn differs(self, parts: Vec<&'static str>) -> Self {
        let detail = format!(
            "this key was used for another request, which differs in: {}; use a new key for a new operation, \
             or repeat the first request unchanged",
            parts.join(", ")
        );
        Self { differs: parts, ..self }.detail(detail)
    }

    /// The problem for a run that ended in `cause` on a hold route: the key is held, so the advice to send the
    /// request again would be wrong.
    pub(crate) fn unknown_after(cause: Option<&Self>) -> Self {
        let unknown = Self::outcome_unknown();
        match cause {
            Some(cause) if cause.name != unknown.name => {
                let detail = format!("{}: {}", cause.title, unknown.detail);
                unknown.detail(detail)
            }
            Some(_) | None => unknown,
        }
    }

    fn of_store(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Full => Self::store_full(),
            ErrorKind::Closed => Self::shutting_down(),
            ErrorKind::Corrupt | ErrorKind::Unsupported => {
                let detail =
                    "nothing ran; the record of this key cannot be read, an operator has to look";
                Self { retry: RetryAdvice::Never, ..Self::store_unavailable() }.detail(detail)
            }
            _ => Self::store_unavailable(),
        }
    }

    /// The name, as in `Semel-Status` and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Makes the answer and counts it. The problem is also in the answer's extensions, which no header of an inner
    /// service can imitate. `base` is the prefix of the name in `type`: [`Problem::BASE`], or the address of your
    /// own pages.
    #[must_use]
    pub fn response(&self, base: &str) -> Response<Bytes> {
        telemetry::count_problem(self.name);
        let mut response = Response::new(self.json(base));
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self.clone());
        let fixed: [(HeaderName, &'static str); 4] = [
            (SEMEL_STATUS, self.name),
            (header::CONTENT_TYPE, "application/problem+json"),
            (header::CACHE_CONTROL, "no-store"),
            (STRIPE_SHOULD_RETRY, if self.retry == RetryAdvice::Never { "false" } else { "true" }),
        ];
        let headers = response.headers_mut();
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let RetryAdvice::After(wait) = self.retry {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        response
    }

    /// The members of RFC 9457, and the `error` object that the Stripe SDKs look for.
    fn json(&self, base: &str) -> Bytes {
        let members = ProblemMembers {
            r#type: format!("{base}{}", self.name),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            differs: &self.differs,
            error: ErrorMember {
                r#type: "idempotency_error",
                code: self.name.replace('-', "_"),
                message: &self.detail,
            },
        };
        serde_json::to_vec(&members).expect("text and a number have a JSON form").into()
    }
}

/// The members of a problem in the order in which they are written: a reader sees type and title first.
#[derive(Serialize)]
struct ProblemMembers<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    differs: &'a [&'static str],
    error: ErrorMember<'a>,
}

#[derive(Serialize)]
struct ErrorMember<'a> {
    r#type: &'a str,
    code: String,
    message: &'a str,
}

/// The problem that an inner semel answered with: a name from the list above, on the status of that name. Any
/// other value of `Semel-Status` comes from the upstream and is ignored.
pub(crate) fn inner_problem<B>(answer: &Response<B>) -> Option<&'static str> {
    let mut values = answer.headers().get_all(SEMEL_STATUS).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (name, status) = STATUSES.iter().find(|(name, _)| value == name)?;
    let fits = match *name {
        // The status is a setting of the inner semel and may be any 4xx.
        FINGERPRINT_MISMATCH => answer.status().is_client_error(),
        _ => answer.status() == *status,
    };
    fits.then_some(name)
}

/// True if the run may have taken effect and no request will run it again: its key is Unknown, or will be when
/// the lease ends.
pub(crate) fn is_unknown(error: &RunError, policy: &RoutePolicy) -> bool {
    match error {
        RunError::Unknown => true,
        RunError::Interrupted => policy.holds(),
        // Attempt 0 ran without a claim, so no key is held.
        RunError::Retry(retry) => {
            policy.holds() && retry.attempt > 0 && retry.ending != Ending::NoEffect
        }
        _ => false,
    }
}

/// Rounded up, because a client that comes back too early is refused again.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use semel_core::OnLostOwner;

    use super::*;

    #[test]
    fn every_problem_has_its_page() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/problems");
        for (name, _) in STATUSES {
            let page = std::fs::read_to_string(pages.join(format!("{name}.md"))).unwrap();
            assert!(page.contains(&format!("{BASE}{name}")), "{name}");
        }
    }

    #[test]
    fn every_page_shows_the_members_that_are_sent() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/problems");
        for problem in ALL.iter().map(|make| make()) {
            let page = std::fs::read_to_string(pages.join(format!("{}.md", problem.name))).unwrap();
            let shown = page.split("\n\n{").nth(1).and_then(|rest| rest.split("\n```").next());
            let shown: serde_json::Value =
                serde_json::from_str(&format!("{{{}", shown.unwrap())).unwrap();
            let sent: serde_json::Value = serde_json::from_slice(&problem.json(BASE)).unwrap();
            for member in ["type", "title", "status"] {
                assert_eq!(shown[member], sent[member], "{}", problem.name);
            }
            assert_eq!(shown["error"]["code"], sent["error"]["code"], "{}", problem.name);
            assert!(page.contains(problem.status.as_str()), "{}", problem.name);
        }
    }

    #[test]
    fn a_wait_is_rounded_up_to_whole_seconds() {
        for (ms, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (29_500, 30)] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), seconds, "{ms}");
        }
    }

    #[test]
    fn a_problem_begins_with_its_type_and_title() {
        for problem in ALL.iter().map(|make| make()) {
            let body = problem.response(BASE).into_body();
            let (name, title) = (problem.name, problem.title);
            let begins = format!("{{\"type\":\"{BASE}{name}\",\"title\":\"{title}\",\"status\":");
            assert!(body.starts_with(begins.as_bytes()), "{body:?}");
        }
    }

    #[test]
    fn a_run_in_progress_is_worth_a_retry_within_seconds() {
        for (left, seconds) in [(0, "1"), (1500, "2"), (3000, "3"), (3001, "3"), (30_000, "3")] {
            let error = RunError::Busy { retry_after: Duration::from_millis(left) };
            let answer = Problem::of(&error, &RoutePolicy::api()).response(BASE);
            assert_eq!(answer.headers()[header::RETRY_AFTER], seconds, "{left} ms are left");
        }
    }

    #[test]
    fn a_run_that_was_interrupted_on_a_hold_route_is_not_worth_a_retry() {
        let hold = RoutePolicy::api().on_lost_owner(OnLostOwner::Hold);
        for (policy, name) in [(RoutePolicy::api(), ATTEMPT_FAILED), (hold, OUTCOME_UNKNOWN)] {
            assert_eq!(Problem::of(&RunError::Interrupted, &policy).name, name);
        }
    }

    #[test]
    fn a_record_that_cannot_be_read_is_not_worth_a_retry() {
        let error = RunError::Store(Error::new(ErrorKind::Corrupt, "damaged"));
        let answer = Problem::of(&error, &RoutePolicy::api()).response(BASE);
        assert_eq!(answer.headers()[STRIPE_SHOULD_RETRY], "false");
        assert!(!answer.headers().contains_key(header::RETRY_AFTER));
    }
}
