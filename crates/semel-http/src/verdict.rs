//! The verdict on a handler's answer: what its status means for the key.

use http::{Response, StatusCode};
use semel_core::{Ending, ErrorClass};

use crate::{
    RoutePolicy,
    problem::{self, MAY_HAVE_TAKEN_EFFECT, UPSTREAM_HEAD_TOO_LARGE},
};

/// Overrides what the status says about the attempt. The handler puts it into the extensions of its
/// response:
///
/// ```
/// use semel_http::HandlerVerdict;
/// let mut response = http::Response::new("sold out, nothing was booked");
/// *response.status_mut() = http::StatusCode::CONFLICT;
/// response.extensions_mut().insert(HandlerVerdict::NoEffect);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerVerdict {
    /// This answer is the outcome, with any status. It is recorded.
    Final,
    /// Nothing happened. The key is free, also for another request.
    NoEffect,
    /// Something may have happened; the same request may try again.
    Retry,
    /// The effect cannot be known. The key is free after a backoff, or is put on hold.
    Indeterminate,
}

impl HandlerVerdict {
    pub(crate) const fn ending(self) -> Ending {
        match self {
            Self::Final => Ending::Final,
            Self::NoEffect => Ending::NoEffect,
            Self::Retry => Ending::Retry,
            Self::Indeterminate => Ending::Indeterminate,
        }
    }
}

/// How an attempt with this answer ends.
pub(crate) fn ending<B>(answer: &Response<B>, policy: &RoutePolicy) -> Ending {
    if let Some(verdict) = answer.extensions().get::<HandlerVerdict>() {
        return verdict.ending();
    }
    // The answer may be a problem of an inner semel.
    match problem::inner_problem(answer) {
        Some(UPSTREAM_HEAD_TOO_LARGE) => return Ending::Final,
        Some(name) if MAY_HAVE_TAKEN_EFFECT.contains(&name) => return Ending::Retry,
        Some(_) => return Ending::NoEffect,
        None => {}
    }
    match answer.status() {
        // The request was refused before any work.
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => Ending::NoEffect,
        // The time limit may have ended the work half-way.
        StatusCode::REQUEST_TIMEOUT => Ending::Retry,
        status if status.is_server_error() && policy.keeps_server_errors() => Ending::Final,
        status if status.is_server_error() || status.is_informational() => Ending::Retry,
        _ => Ending::Final,
    }
}

/// The status of a failure that was recorded without one, by an operator or through the library.
pub(crate) fn status(kind: &str) -> StatusCode {
    match kind {
        "validation" => StatusCode::BAD_REQUEST,
        "unauthorised" => StatusCode::FORBIDDEN,
        "not_found" => StatusCode::NOT_FOUND,
        _ => StatusCode::CONFLICT,
    }
}

/// The class of a failed attempt, for metrics.
pub(crate) fn class(status: StatusCode) -> ErrorClass {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorClass::Unauthorised,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => ErrorClass::Timeout,
        StatusCode::BAD_GATEWAY => ErrorClass::Network,
        StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            ErrorClass::Transient
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => ErrorClass::NotFound,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => ErrorClass::Validation,
        status if status.is_client_error() => ErrorClass::BusinessRule,
        _ => ErrorClass::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use semel_core::OnLostOwner;

    use super::*;
    use crate::header::SEMEL_STATUS;

    fn of(status: u16, policy: &RoutePolicy) -> Ending {
        ending(&Response::builder().status(status).body(()).unwrap(), policy)
    }

    #[test]
    fn answers_mean_what_is_published() {
        let api = RoutePolicy::api();
        for status in [200, 201, 204, 302, 400, 402, 404, 409, 422] {
            assert_eq!(of(status, &api), Ending::Final, "{status}");
        }
        for status in [401, 403, 425, 429] {
            assert_eq!(of(status, &api), Ending::NoEffect, "{status}");
        }
        for status in [101, 408, 500, 502, 503, 504] {
            assert_eq!(of(status, &api), Ending::Retry, "{status}");
        }
    }

    #[test]
    fn a_hold_route_takes_a_server_error_as_final_but_no_timeout() {
        let hold = RoutePolicy::api().on_lost_owner(OnLostOwner::Hold);
        assert_eq!(of(500, &hold), Ending::Final);
        assert_eq!(of(408, &hold), Ending::Retry);
        assert_eq!(of(401, &hold), Ending::NoEffect);
    }

    #[test]
    fn a_problem_of_an_inner_semel_decides_the_verdict() {
        let of = |status: u16, name: &str, policy: &RoutePolicy| {
            let answer = Response::builder().status(status).header(SEMEL_STATUS, name);
            ending(&answer.body(()).unwrap(), policy)
        };
        let hold = RoutePolicy::api().on_lost_owner(OnLostOwner::Hold);
        assert_eq!(of(409, "in-progress", &hold), Ending::NoEffect);
        assert_eq!(of(500, "attempt-failed", &hold), Ending::Retry);
        assert_eq!(of(409, "outcome-unknown", &hold), Ending::Retry);
        // The operation ran, and the inner semel has recorded that.
        for policy in [&hold, &RoutePolicy::api()] {
            assert_eq!(of(502, "upstream-head-too-large", policy), Ending::Final);
        }
        for status in [409, 422, 400] {
            assert_eq!(of(status, "fingerprint-mismatch", &hold), Ending::NoEffect, "{status}");
        }
    }

    #[test]
    fn semel_status_is_ignored_on_a_status_that_does_not_fit_its_name() {
        for (status, name) in [
            (200, "attempt-failed"),
            (201, "in-progress"),
            (200, "outcome-unknown"),
            (404, "in-progress"),
            (409, "no-such-name"),
            (409, "In-Progress"),
            (409, ""),
            (409, "in-progress, in-progress"),
        ] {
            let answer = Response::builder().status(status).header(SEMEL_STATUS, name);
            let ending = ending(&answer.body(()).unwrap(), &RoutePolicy::api());
            assert_eq!(ending, Ending::Final, "{status} {name}");
        }
        let twice = Response::builder().status(409).header(SEMEL_STATUS, "in-progress");
        let twice = twice.header(SEMEL_STATUS, "in-progress").body(()).unwrap();
        assert_eq!(ending(&twice, &RoutePolicy::api()), Ending::Final);
    }

    #[test]
    fn a_handler_verdict_overrides_the_status() {
        let mut response =
            Response::builder().status(503).header(SEMEL_STATUS, "x").body(()).unwrap();
        response.extensions_mut().insert(HandlerVerdict::Final);
        assert_eq!(ending(&response, &RoutePolicy::api()), Ending::Final);
    }
}
