//! Installs the log on stderr and the metrics for Prometheus. All other code uses the facades `tracing` and `metrics`;
//! this is the one place that chooses where they go.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use anyhow::Context;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use semel::{
    ErrorClass, Stats,
    http::telemetry::name::{HTTP_OBSERVED, HTTP_PROBLEMS, HTTP_UNPROTECTED},
    telemetry::{STORE_LATENCY_BUCKETS, name},
};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::{
    Layer, filter::Targets, fmt, fmt::MakeWriter, layer::SubscriberExt, registry,
};

use crate::settings::{LogFormat, LogLevel, LogSettings};

/// From the quick retry of a client to the last day of a long retention.
const DUPLICATE_AGE_BUCKETS: [f64; 13] = [
    0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 259_200.0, 604_800.0,
];

/// Problems worth an alert. Their counters exist before the first of them happens.
const PROBLEMS: [&str; 9] = [
    "attempts-exhausted",
    "fingerprint-mismatch",
    "outcome-unknown",
    "overloaded",
    "store-full",
    "store-unavailable",
    "upstream-failed",
    "upstream-timeout",
    "upstream-unreachable",
];

/// How often samples of histograms are aggregated; until then each of them takes memory.
const AGGREGATE_EVERY: Duration = Duration::from_secs(1);

/// The metrics of this process, as `/metrics` shows them.
#[derive(Clone, Debug)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// All metrics in the text format of Prometheus.
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// The metrics of one recorder, so that tests do not share the recorder of the process.
    #[cfg(test)]
    pub(crate) fn of(recorder: &PrometheusRecorder) -> Self {
        Self(recorder.handle())
    }
}

/// Writes the rest of the log when it is dropped.
#[derive(Debug)]
#[must_use = "nothing is logged any more when this is dropped"]
pub struct Logs(#[expect(dead_code, reason = "it is there to be dropped")] WorkerGuard);

/// The buckets of one histogram: its name, and the upper bounds.
pub type Buckets = (&'static str, &'static [f64]);

/// Installs logs and metrics for this process, once; `buckets` are those of the service's own histograms. Needs a
/// runtime.
///
/// # Errors
///
/// When they are installed already, or a histogram has no bucket.
pub fn init(log: &LogSettings, buckets: &[Buckets]) -> anyhow::Result<(Metrics, Logs)> {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // A separate thread writes the log and drops lines when it cannot keep up: no request waits for the reader of
    // the log.
    let (stderr, guard) = tracing_appender::non_blocking(io::stderr());
    tracing::subscriber::set_global_default(subscriber(log, colour, stderr))
        .context("logs are installed already")?;
    let recorder = recorder(buckets)?;
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).ok().context("metrics are installed already")?;
    describe();
    register();
    tokio::spawn(aggregate_samples(handle.clone()));
    Ok((Metrics(handle), Logs(guard)))
}

/// Installs a log of warnings on stderr, for commands that end by themselves.
pub fn warnings() -> Logs {
    let log = LogSettings { level: LogLevel::Warn, format: LogFormat::Text };
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (stderr, guard) = tracing_appender::non_blocking(io::stderr());
    // The command works without its warnings, too.
    let _ = tracing::subscriber::set_global_default(subscriber(&log, colour, stderr));
    Logs(guard)
}

fn subscriber<W>(log: &LogSettings, colour: bool, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // A log that cannot be written is lost; reporting that on stderr, as is the default, would panic.
    let lines = fmt::layer().with_writer(writer).with_ansi(colour).log_internal_errors(false);
    let registry = registry();
    match log.format {
        LogFormat::Text => Box::new(registry.with(lines.compact().with_filter(filter(log)))),
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_span_list(false);
            Box::new(registry.with(lines.with_filter(filter(log))))
        }
    }
}

const fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// The level `debug` is for semel's own crates; others stay at `info`, unless the level is `trace`.
fn filter(log: &LogSettings) -> Targets {
    let level = level(log.level);
    let others = if level == LevelFilter::TRACE { level } else { level.min(LevelFilter::INFO) };
    Targets::new()
        .with_default(others)
        .with_target("semel", level)
        // An operator's change is logged with its reason at every level.
        .with_target("semel_core::engine::operator", level.max(LevelFilter::INFO))
        .with_target("semel_consumer::dead_letter::redrive", level.max(LevelFilter::INFO))
}

fn recorder(of_service: &[Buckets]) -> anyhow::Result<PrometheusRecorder> {
    let own: [Buckets; 2] = [
        (name::STORE_LATENCY, &STORE_LATENCY_BUCKETS),
        (name::DUPLICATE_AGE, &DUPLICATE_AGE_BUCKETS),
    ];
    let mut buckets = own.iter().chain(of_service);
    let builder = buckets.try_fold(PrometheusBuilder::new(), |builder, (name, buckets)| {
        builder.set_buckets_for_metric(Matcher::Full((*name).to_owned()), buckets)
    })?;
    Ok(builder.build_recorder())
}

async fn aggregate_samples(handle: PrometheusHandle) {
    loop {
        tokio::time::sleep(AGGREGATE_EVERY).await;
        handle.run_upkeep();
    }
}

/// Creates the counters that alerts use, so that the first scrape shows them at 0: an alert on a rate misses the step
/// from nothing to 1. The gauges of the store are set by [`show_stats`].
fn register() {
    for tier in ["cache", "store", "wait"] {
        counter!(name::CACHE_HIT, "tier" => tier).increment(0);
    }
    let plain = [
        name::CACHE_MISS,
        name::KEY_COLLISION,
        name::OUTCOME_UNSTORED,
        name::TAKEOVERS,
        name::SUPERSEDED,
        name::BECAME_UNKNOWN,
        name::BECAME_DEAD,
        name::PURGED,
    ];
    for name in plain {
        counter!(name).increment(0);
    }
    for class in CLASSES {
        counter!(name::FAILURES, "class" => class.as_str()).increment(0);
    }
    for problem in PROBLEMS {
        counter!(HTTP_PROBLEMS, "problem" => problem).increment(0);
    }
    for why in ["primary_unreachable", "secondary_unasked"] {
        counter!(name::UNPROTECTED, "why" => why).increment(0);
    }
    for name in [name::IN_FLIGHT, name::WAITERS] {
        gauge!(name).increment(0.0);
    }
    let _ = histogram!(name::DUPLICATE_AGE);
}

const CLASSES: [ErrorClass; 9] = [
    ErrorClass::Validation,
    ErrorClass::BusinessRule,
    ErrorClass::Unauthorised,
    ErrorClass::NotFound,
    ErrorClass::Timeout,
    ErrorClass::Transient,
    ErrorClass::Network,
    ErrorClass::Unknown,
    ErrorClass::Panic,
];

/// Sets the HELP lines.
fn describe() {
    describe_counter!(name::CACHE_HIT, "Replays, by where the outcome came from");
    describe_counter!(name::CACHE_MISS, "Granted claims");
    describe_counter!(name::KEY_COLLISION, "Keys reused for another request");
    describe_counter!(
        name::OUTCOME_UNSTORED,
        "Runs whose outcome was not recorded; alert when not 0"
    );
    describe_counter!(name::FAILURES, "Attempts that failed, by class");
    describe_counter!(name::TAKEOVERS, "Keys taken over from an owner that was lost");
    describe_counter!(name::SUPERSEDED, "Owners that found their key taken over");
    describe_counter!(
        name::BECAME_UNKNOWN,
        "Keys that became unknown and wait for an operator; alert when it rises"
    );
    describe_counter!(name::BECAME_DEAD, "Keys that ran out of attempts; alert when it rises");
    describe_counter!(name::PURGED, "Expired records that maintenance deleted");
    describe_gauge!(
        name::CLEANUP_LEADER,
        "1 in the process that does the maintenance of a shared store"
    );
    describe_counter!(name::FRONT_LOOKS, "Copies read from the front, by result");
    describe_counter!(name::FRONT_PUTS, "Copies written to the front, by result");
    describe_counter!(
        name::UNPROTECTED,
        "Keys granted without asking the store that is down; each may run twice"
    );
    describe_gauge!(name::CIRCUIT_OPEN, "1 while a store does not answer and is not called");
    describe_counter!(HTTP_PROBLEMS, "Responses that the HTTP layer gave itself, by problem");
    describe_counter!(HTTP_OBSERVED, "What enforce mode would have done, in observe mode");
    describe_counter!(
        HTTP_UNPROTECTED,
        "Requests with a key on a method that is not protected, by method"
    );
    describe_histogram!(name::STORE_LATENCY, "Milliseconds per store call, by store and step");
    describe_histogram!(name::DUPLICATE_AGE, "Seconds between an outcome and its replay");
    describe_gauge!(name::IN_FLIGHT, "Work running now");
    describe_gauge!(name::WAITERS, "Callers that wait for the outcome of another run");
    describe_gauge!(name::RECORDS, "Records in the store, at the last maintenance");
    describe_gauge!(name::UNKNOWN, "Records whose outcome is unknown, at the last maintenance");
    describe_gauge!(name::DEAD, "Records out of attempts, at the last maintenance");
}

/// Sets the gauges of the store at the start: the engine sets them only at its first maintenance.
#[expect(clippy::cast_precision_loss, reason = "a gauge of 2^53 records is precise enough")]
pub fn show_stats(stats: &Stats) {
    gauge!(name::RECORDS).set(stats.records as f64);
    gauge!(name::UNKNOWN).set(stats.unknown as f64);
    gauge!(name::DEAD).set(stats.dead as f64);
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::Path,
        sync::{Arc, Mutex},
    };

    use super::*;

    /// Collects the lines of a log.
    #[derive(Clone, Default)]
    struct CapturedLog(Arc<Mutex<Vec<u8>>>);

    impl io::Write for CapturedLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What `work` logs.
    fn logged(level: LogLevel, format: LogFormat, work: impl FnOnce()) -> String {
        let lines = CapturedLog::default();
        let writer = lines.clone();
        let subscriber = subscriber(&LogSettings { level, format }, false, move || writer.clone());
        tracing::subscriber::with_default(subscriber, work);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_line_of_text_has_a_utc_time_and_no_colour() {
        let text =
            logged(LogLevel::Info, LogFormat::Text, || tracing::info!(port = 1, "listening"));
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("listening") && text.contains("port=1"), "{text}");
        assert_eq!(text.find('Z'), Some("2025-01-01T00:00:00.000000".len()), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_line_of_json_is_an_object() {
        let text =
            logged(LogLevel::Info, LogFormat::Json, || tracing::warn!(port = 1, "listening"));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["port"]), (&"WARN".into(), &1.into()), "{line}");
        assert_eq!(line["message"], "listening");
    }

    #[test]
    fn debug_is_about_semel_alone() {
        let work = || {
            tracing::debug!(target: "semel_core::engine", "ours");
            tracing::debug!(target: "hyper::proto", "theirs");
            tracing::trace!(target: "semel", "too much");
        };
        let text = logged(LogLevel::Debug, LogFormat::Text, work);
        assert!(text.contains("ours") && text.lines().count() == 1, "{text}");
        assert_eq!(logged(LogLevel::Trace, LogFormat::Text, work).lines().count(), 3);
        assert_eq!(logged(LogLevel::Warn, LogFormat::Text, work), "");
    }

    /// No other test may install the recorder of the process.
    #[tokio::test]
    async fn the_first_scrape_shows_what_is_alerted_on() {
        let log = LogSettings { level: LogLevel::Error, format: LogFormat::Text };
        let (metrics, _logs) = init(&log, &[]).unwrap();
        let page = metrics.render();
        let lines = [
            "idempotency_outcome_unstored_total 0",
            "idempotency_became_unknown_total 0",
            "idempotency_became_dead_total 0",
            "idempotency_cache_hit_total{tier=\"wait\"} 0",
            "idempotency_failures_total{class=\"panic\"} 0",
            "idempotency_http_problems_total{problem=\"store-unavailable\"} 0",
            "idempotency_unprotected_total{why=\"primary_unreachable\"} 0",
            "idempotency_duplicate_age_seconds_bucket{le=\"604800\"} 0",
            "# HELP idempotency_takeovers_total Keys taken over from an owner that was lost",
        ];
        for line in lines {
            assert!(page.lines().any(|shown| shown == line), "{line} in {page}");
        }
        histogram!(name::STORE_LATENCY, "store" => "memory", "step" => "get").record(0.07);
        assert!(metrics.render().contains("le=\"0.1\"} 1"));
        assert!(init(&log, &[]).is_err());
    }

    #[test]
    fn every_problem_shown_from_the_start_has_its_page() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/problems");
        for problem in PROBLEMS {
            assert!(fs::exists(pages.join(format!("{problem}.md"))).unwrap(), "{problem}");
        }
    }
}
