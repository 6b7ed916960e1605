//! The problems that a target must answer with, and the headers and members that all of them have.

use serde_json::Value;

use super::TestResponse;

/// A problem that a case expects.
pub(super) struct ExpectedProblem {
    name: &'static str,
    status: u16,
    retry: ExpectedRetry,
}

/// Whether a client should retry.
enum ExpectedRetry {
    Never,
    /// Retry, although the attempt may have had an effect.
    Failed,
    /// Nothing happened. Retry after `Retry-After`, which is a few seconds.
    Later,
}

pub(super) const KEY_MISSING: ExpectedProblem =
    ExpectedProblem::new("key-missing", 400, ExpectedRetry::Never);
pub(super) const KEY_INVALID: ExpectedProblem =
    ExpectedProblem::new("key-invalid", 400, ExpectedRetry::Never);
pub(super) const MISMATCH: ExpectedProblem =
    ExpectedProblem::new("fingerprint-mismatch", 409, ExpectedRetry::Never);
pub(super) const MISMATCH_422: ExpectedProblem =
    ExpectedProblem::new("fingerprint-mismatch", 422, ExpectedRetry::Never);
pub(super) const IN_PROGRESS: ExpectedProblem =
    ExpectedProblem::new("in-progress", 409, ExpectedRetry::Later);
pub(super) const UNKNOWN: ExpectedProblem =
    ExpectedProblem::new("outcome-unknown", 409, ExpectedRetry::Never);
pub(super) const EXHAUSTED: ExpectedProblem =
    ExpectedProblem::new("attempts-exhausted", 409, ExpectedRetry::Never);
pub(super) const ERASED: ExpectedProblem =
    ExpectedProblem::new("erased", 410, ExpectedRetry::Never);
pub(super) const TOO_LARGE: ExpectedProblem =
    ExpectedProblem::new("body-too-large", 413, ExpectedRetry::Never);
pub(super) const FAILED: ExpectedProblem =
    ExpectedProblem::new("attempt-failed", 500, ExpectedRetry::Failed);
/// A gateway sees a broken connection where a layer sees a panic.
pub(super) const UPSTREAM_FAILED: ExpectedProblem =
    ExpectedProblem::new("upstream-failed", 502, ExpectedRetry::Failed);
pub(super) const STORE_UNAVAILABLE: ExpectedProblem =
    ExpectedProblem::new("store-unavailable", 503, ExpectedRetry::Later);

impl ExpectedProblem {
    const fn new(name: &'static str, status: u16, retry: ExpectedRetry) -> Self {
        Self { name, status, retry }
    }

    /// Asserts that an answer is this problem, or the one that a gateway answers with instead.
    pub(super) fn assert_is_or_upstream_failed(&self, answer: &TestResponse, promise: &str) {
        let problem = if answer.status == UPSTREAM_FAILED.status { &UPSTREAM_FAILED } else { self };
        problem.assert_is(answer, promise);
    }

    /// Asserts that an answer is this problem, with all its headers and members.
    pub(super) fn assert_is(&self, answer: &TestResponse, promise: &str) {
        let name = self.name;
        let seen = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status, self.status, "{promise}: {name}, but got {seen}");
        assert_eq!(answer.text("semel-status"), Some(name), "{promise}: Semel-Status of {name}");
        assert!(!answer.is_replay(), "{name}: a problem is no replay");
        let fresh = answer.text("cache-control").is_some_and(|rule| rule.contains("no-store"));
        assert!(fresh, "{name}: no cache may keep a problem");
        self.assert_retry_headers(answer);
        self.assert_problem_json(answer);
    }

    fn assert_retry_headers(&self, answer: &TestResponse) {
        let name = self.name;
        let (retry, later) = match self.retry {
            ExpectedRetry::Never => ("false", false),
            ExpectedRetry::Failed => ("true", false),
            ExpectedRetry::Later => ("true", true),
        };
        assert_eq!(
            answer.text("stripe-should-retry"),
            Some(retry),
            "{name}: should a client retry"
        );
        let seconds = answer.text("retry-after").map(str::parse::<u64>);
        assert!(
            !later || matches!(seconds, Some(Ok(1..=5))),
            "{name}: Retry-After is a few seconds"
        );
        assert!(retry == "true" || seconds.is_none(), "{name}: no Retry-After where none helps");
    }

    fn assert_problem_json(&self, answer: &TestResponse) {
        let name = self.name;
        assert_eq!(answer.text("content-type"), Some("application/problem+json"), "{name}");
        let body: Value = serde_json::from_slice(&answer.body)
            .unwrap_or_else(|error| panic!("{name}: a problem is JSON: {error}"));
        let seen = String::from_utf8_lossy(&answer.body);
        let place = |member: &str| seen.find(&format!("\"{member}\":"));
        let begins = seen.starts_with("{\"type\":") && place("title") < place("status");
        assert!(begins, "{name}: type and title come first, in {seen}");
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
        assert!(text("/type").is_some_and(|kind| kind.ends_with(name)), "{name}: type, in {body}");
        assert_eq!(body["status"], self.status, "{name}: status, in {body}");
        for member in ["/title", "/detail", "/error/type", "/error/code", "/error/message"] {
            assert!(
                text(member).is_some_and(|text| !text.is_empty()),
                "{name}: {member}, in {body}"
            );
        }
    }
}
