//! The worker's own metrics, beside those of the engine and the consumer.

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};
use semel_consumer::telemetry::{HANDLER_BUCKETS, name as consumer};
use semel_service::telemetry::Buckets;

/// Names as they are published.
mod name {
    /// Requests to the handler; label `result`.
    pub(super) const REQUESTS: &str = "semel_worker_requests_total";
    /// Times that the file of the seal keys was read again; label `result`.
    pub(super) const RELOADS: &str = "semel_worker_reloads_total";
    /// Always 1; label `version`.
    pub(super) const BUILD_INFO: &str = "semel_build_info";
}

/// The buckets of the consumer's histogram.
pub(crate) const BUCKETS: Buckets = (consumer::HANDLER_SECONDS, &HANDLER_BUCKETS);

/// What became of a request to the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestResult {
    Success,
    /// A status that no retry would change.
    Permanent,
    /// Another status.
    Retry,
    /// No byte was sent.
    Unreachable,
    /// There was no response, or one that is not HTTP.
    Broken,
    Timeout,
}

const RESULTS: [(RequestResult, &str); 6] = [
    (RequestResult::Success, "success"),
    (RequestResult::Permanent, "permanent"),
    (RequestResult::Retry, "retry"),
    (RequestResult::Unreachable, "unreachable"),
    (RequestResult::Broken, "broken"),
    (RequestResult::Timeout, "timeout"),
];

/// Creates the counters, so that the first scrape shows them at 0, and sets the HELP lines.
pub(crate) fn register() {
    gauge!(name::BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    for (_, result) in RESULTS {
        counter!(name::REQUESTS, "result" => result).increment(0);
    }
    for result in ["ok", "refused"] {
        counter!(name::RELOADS, "result" => result).increment(0);
    }
    describe_counter!(name::RELOADS, "Times that changed seal keys were read again, by result");
    describe_counter!(name::REQUESTS, "Requests to the handler, by result");
    describe_histogram!(consumer::HANDLER_SECONDS, "Seconds that the handler took for an event");
    describe_counter!(consumer::SETTLED, "Deliveries that were settled, by outcome");
    describe_counter!(consumer::REDELIVERIES, "Messages that the broker had delivered before");
    describe_counter!(consumer::DEAD_LETTERS, "Messages that became dead letters, by reason");
    describe_gauge!(consumer::LAG, "Messages that wait in the broker");
    describe_gauge!(consumer::PAUSED, "1 while no messages are received");
    describe_gauge!(consumer::BREAKER_STATE, "Circuit breaker: 0 closed, 1 half-open, 2 open");
    describe_gauge!(consumer::IN_FLIGHT, "Deliveries that are received and not settled");
}

/// Counts a request.
pub(crate) fn count(result: RequestResult) {
    counter!(name::REQUESTS, "result" => RESULTS[result as usize].1).increment(1);
}

/// Counts a change of the seal keys.
pub(crate) fn reloaded(result: &'static str) {
    counter!(name::RELOADS, "result" => result).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_is_at_its_own_index() {
        for (at, (result, _)) in RESULTS.iter().enumerate() {
            assert_eq!(*result as usize, at);
        }
    }
}
