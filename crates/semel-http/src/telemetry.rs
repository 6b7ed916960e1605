//! The metrics of the layer, beside those of the engine.

use metrics::counter;

/// Names as they are published.
pub mod name {
    /// Problems that semel answered with; label `problem`.
    pub const HTTP_PROBLEMS: &str = "idempotency_http_problems_total";
    /// What enforcing would have done in observe mode; label `result`.
    pub const HTTP_OBSERVED: &str = "idempotency_http_observed_total";
    /// Requests with a key whose method is not protected; label `method`.
    pub const HTTP_UNPROTECTED: &str = "idempotency_http_unprotected_total";
}

pub(crate) fn count_problem(problem: &'static str) {
    counter!(name::HTTP_PROBLEMS, "problem" => problem).increment(1);
}

pub(crate) fn count_unprotected(method: &'static str) {
    counter!(name::HTTP_UNPROTECTED, "method" => method).increment(1);
}

pub(crate) fn count_observed(result: &'static str) {
    counter!(name::HTTP_OBSERVED, "result" => result).increment(1);
}
