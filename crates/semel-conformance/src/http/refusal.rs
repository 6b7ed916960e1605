//! The door's own answers, and the shape all of them have.

use serde_json::Value;

use super::Answer;

/// One of the door's own answers.
pub(super) struct Refusal {
    name: &'static str,
    status: u16,
    again: Again,
}

/// What a client should do with it.
enum Again {
    Never,
    /// Send it again, though it may have had an effect.
    Failed,
    /// Nothing happened; send it again when `Retry-After` says, which is soon.
    Later,
}

pub(super) const KEY_MISSING: Refusal = Refusal::new("key-missing", 400, Again::Never);
pub(super) const KEY_INVALID: Refusal = Refusal::new("key-invalid", 400, Again::Never);
pub(super) const MISMATCH: Refusal = Refusal::new("fingerprint-mismatch", 409, Again::Never);
pub(super) const MISMATCH_422: Refusal = Refusal::new("fingerprint-mismatch", 422, Again::Never);
pub(super) const IN_PROGRESS: Refusal = Refusal::new("in-progress", 409, Again::Later);
pub(super) const UNKNOWN: Refusal = Refusal::new("outcome-unknown", 409, Again::Never);
pub(super) const EXHAUSTED: Refusal = Refusal::new("attempts-exhausted", 409, Again::Never);
pub(super) const ERASED: Refusal = Refusal::new("erased", 410, Again::Never);
pub(super) const TOO_LARGE: Refusal = Refusal::new("body-too-large", 413, Again::Never);
pub(super) const FAILED: Refusal = Refusal::new("attempt-failed", 500, Again::Failed);
/// A gateway sees a broken connection where a layer sees a panic.
pub(super) const BROKEN: Refusal = Refusal::new("upstream-failed", 502, Again::Failed);
pub(super) const NO_STORE: Refusal = Refusal::new("store-unavailable", 503, Again::Later);

impl Refusal {
    const fn new(name: &'static str, status: u16, again: Again) -> Self {
        Self { name, status, again }
    }

    /// Holds an answer to being this refusal, or what a gateway says in its place.
    pub(super) fn or_broken(&self, answer: &Answer, promise: &str) {
        let refusal = if answer.status == BROKEN.status { &BROKEN } else { self };
        refusal.is(answer, promise);
    }

    /// Holds an answer to everything this refusal promises a client.
    pub(super) fn is(&self, answer: &Answer, promise: &str) {
        let name = self.name;
        let seen = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status, self.status, "{promise}: {name}, but got {seen}");
        assert_eq!(answer.text("semel-status"), Some(name), "{promise}: Semel-Status of {name}");
        assert!(!answer.is_replay(), "{name}: the door's own answer is no replay");
        let fresh = answer.text("cache-control").is_some_and(|rule| rule.contains("no-store"));
        assert!(fresh, "{name}: no cache keeps the door's own answers");
        self.says_whether_to_retry(answer);
        self.is_a_problem(answer);
    }

    fn says_whether_to_retry(&self, answer: &Answer) {
        let name = self.name;
        let (again, later) = match self.again {
            Again::Never => ("false", false),
            Again::Failed => ("true", false),
            Again::Later => ("true", true),
        };
        assert_eq!(
            answer.text("stripe-should-retry"),
            Some(again),
            "{name}: should a client retry"
        );
        let seconds = answer.text("retry-after").map(str::parse::<u64>);
        assert!(
            !later || matches!(seconds, Some(Ok(1..=5))),
            "{name}: Retry-After is a few seconds"
        );
        assert!(again == "true" || seconds.is_none(), "{name}: no Retry-After where none helps");
    }

    fn is_a_problem(&self, answer: &Answer) {
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
