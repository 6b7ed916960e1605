//! The gateway's own metrics, beside those of the engine and the HTTP layer. Handles are created once, after the
//! recorder is installed, so that counting is one atomic step.

use std::{sync::LazyLock, time::Duration};

use http::StatusCode;
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use semel_service::telemetry::Buckets;

/// Names as they are published.
pub(crate) mod name {
    /// Responses; label `status`: `2xx` and so on.
    pub(crate) const REQUESTS: &str = "semel_gateway_requests_total";
    /// Seconds from a request's head to its response's head.
    pub(crate) const REQUEST_SECONDS: &str = "semel_gateway_request_seconds";
    /// Open client connections.
    pub(crate) const CONNECTIONS: &str = "semel_gateway_connections";
    /// Requests that an upstream did not answer; labels `upstream` and `kind`.
    pub(crate) const UPSTREAM_ERRORS: &str = "semel_gateway_upstream_errors_total";
    /// Key files that were read again; labels `file` and `result`.
    pub(crate) const RELOADS: &str = "semel_gateway_reloads_total";
    /// Always 1; label `version`.
    pub(crate) const BUILD_INFO: &str = "semel_build_info";
}

/// From a replay out of memory to the slowest upstream.
pub(crate) const REQUEST_BUCKETS: Buckets = (
    name::REQUEST_SECONDS,
    &[
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
        60.0,
    ],
);

static HANDLES: LazyLock<Handles> = LazyLock::new(Handles::new);

struct Handles {
    requests: [Counter; 5],
    seconds: Histogram,
    connections: Gauge,
    /// By file: the reloads that were refused, and those that were accepted.
    reloads: [[Counter; 2]; 2],
}

/// A file of keys that is read again while the gateway runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reload {
    SealKeys,
    JwtKeys,
}

impl Handles {
    fn new() -> Self {
        gauge!(name::BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        Self {
            requests: ["1xx", "2xx", "3xx", "4xx", "5xx"]
                .map(|status| counter!(name::REQUESTS, "status" => status)),
            seconds: histogram!(name::REQUEST_SECONDS),
            connections: gauge!(name::CONNECTIONS),
            reloads: ["seal_keys", "jwt_keys"].map(|file| {
                ["refused", "ok"]
                    .map(|result| counter!(name::RELOADS, "file" => file, "result" => result))
            }),
        }
    }

    fn answered(&self, status: StatusCode, took: Duration) {
        // A status of 600 or more has no class, and the gateway sends none.
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.requests[class].increment(1);
        self.seconds.record(took.as_secs_f64());
    }
}

/// Creates all handles, so that the first scrape shows them. A recorder must be installed before: earlier handles
/// would never count.
pub(crate) fn register() {
    LazyLock::force(&HANDLES);
    describe_counter!(name::REQUESTS, "Responses, by class of status");
    describe_histogram!(name::REQUEST_SECONDS, "Seconds from a request's head to its response's");
    describe_gauge!(name::CONNECTIONS, "Open client connections");
    describe_counter!(name::UPSTREAM_ERRORS, "Requests that an upstream did not answer, by kind");
    describe_counter!(
        name::RELOADS,
        "Key files read again while running, by file and whether the keys were accepted"
    );
    describe_gauge!(name::BUILD_INFO, "The version of semel that runs");
}

/// Counts a response and the time until its head was ready.
pub(crate) fn answered(status: StatusCode, took: Duration) {
    HANDLES.answered(status, took);
}

/// Counts a response that hyper gave itself: 400, or 431 to a head that is too large.
pub(crate) fn unreadable() {
    HANDLES.requests[3].increment(1);
}

/// Counts a key file that was read again, and whether its keys are now in use.
pub(crate) fn reloaded(file: Reload, ok: bool) {
    HANDLES.reloads[file as usize][usize::from(ok)].increment(1);
}

/// Counts a client connection until the result is dropped.
pub(crate) fn connection() -> CountedConnection {
    HANDLES.connections.increment(1.0);
    CountedConnection(())
}

/// An open client connection.
#[derive(Debug)]
#[must_use = "the connection counts as closed when this is dropped"]
pub(crate) struct CountedConnection(());

impl Drop for CountedConnection {
    fn drop(&mut self) {
        HANDLES.connections.decrement(1.0);
    }
}

/// How an upstream failed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamError {
    /// No byte of the request was sent.
    Unreachable,
    /// The connection broke, or the response could not be read, after bytes had been sent.
    Failed,
    /// The head of the response was over the limit.
    HeadTooLarge,
    /// There was no response in time, after bytes had been sent.
    Timeout,
}

/// The error counters of one upstream. They exist from the start, so that the first scrape shows them.
pub(crate) struct UpstreamErrors {
    unreachable: Counter,
    failed: Counter,
    head_too_large: Counter,
    timeout: Counter,
}

impl UpstreamErrors {
    pub(crate) fn new(upstream: &str) -> Self {
        let counter = |kind: &'static str| counter!(name::UPSTREAM_ERRORS, "upstream" => upstream.to_owned(), "kind" => kind);
        Self {
            unreachable: counter("unreachable"),
            failed: counter("failed"),
            head_too_large: counter("head_too_large"),
            timeout: counter("timeout"),
        }
    }

    pub(crate) fn count(&self, error: UpstreamError) {
        match error {
            UpstreamError::Unreachable => self.unreachable.increment(1),
            UpstreamError::Failed => self.failed.increment(1),
            UpstreamError::HeadTooLarge => self.head_too_large.increment(1),
            UpstreamError::Timeout => self.timeout.increment(1),
        }
    }
}

impl std::fmt::Debug for UpstreamErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamErrors").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use metrics::with_local_recorder;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn a_response_counts_in_its_class() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handles = with_local_recorder(&recorder, Handles::new);
        for status in [200, 201, 404, 999] {
            handles.answered(StatusCode::from_u16(status).unwrap(), Duration::from_millis(3));
        }
        let page = recorder.handle().render();
        for (status, count) in [("1xx", 0), ("2xx", 2), ("3xx", 0), ("4xx", 1), ("5xx", 1)] {
            let line = format!("semel_gateway_requests_total{{status=\"{status}\"}} {count}\n");
            assert!(page.contains(&line), "{line} in {page}");
        }
        assert!(page.contains("semel_gateway_request_seconds_count 4\n"), "{page}");
    }

    #[test]
    fn an_upstream_shows_all_kinds_of_errors_from_the_start() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let errors = with_local_recorder(&recorder, || UpstreamErrors::new("billing"));
        errors.count(UpstreamError::Timeout);
        let page = recorder.handle().render();
        for (kind, count) in [("unreachable", 0), ("failed", 0), ("timeout", 1)] {
            let labels = format!("{{upstream=\"billing\",kind=\"{kind}\"}} {count}\n");
            assert!(page.contains(&labels), "{labels} in {page}");
        }
    }
}
