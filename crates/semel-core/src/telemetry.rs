//! Names of metrics, and the few log lines that operators search for. Labels never contain keys.

use std::time::Duration;

use metrics::{Key, Label, Level, Metadata, counter, gauge, histogram, with_recorder};

use crate::{ErrorClass, KeyHash, Stats};

/// The names of the published metrics.
pub mod name {
    /// A replay; label `tier`: `cache`, `store` or `wait`.
    pub const CACHE_HIT: &str = "idempotency_cache_hit_total";
    /// A claim was granted.
    pub const CACHE_MISS: &str = "idempotency_cache_miss_total";
    /// A key was reused with another fingerprint.
    pub const KEY_COLLISION: &str = "idempotency_key_collision_total";
    /// Work was done and its outcome could not be recorded. Should be 0.
    pub const OUTCOME_UNSTORED: &str = "idempotency_outcome_unstored_total";
    /// Attempts that failed; label `class`.
    pub const FAILURES: &str = "idempotency_failures_total";
    /// Keys taken over from an owner that was lost, not from one that abandoned its key.
    pub const TAKEOVERS: &str = "idempotency_takeovers_total";
    /// Owners that found their key taken over.
    pub const SUPERSEDED: &str = "idempotency_superseded_total";
    /// Milliseconds per store call; labels `store` and `step`.
    pub const STORE_LATENCY: &str = "idempotency_store_latency_ms";
    /// Seconds between an outcome and its replay.
    pub const DUPLICATE_AGE: &str = "idempotency_duplicate_age_seconds";
    /// Work running now.
    pub const IN_FLIGHT: &str = "idempotency_in_flight";
    /// Callers that wait for the result of another caller.
    pub const WAITERS: &str = "idempotency_waiters";
    /// Keys that this process made Unknown, or that it saw as Unknown first.
    pub const BECAME_UNKNOWN: &str = "idempotency_became_unknown_total";
    /// Keys that ran out of attempts, or that this process saw as Dead first.
    pub const BECAME_DEAD: &str = "idempotency_became_dead_total";
    /// Records waiting for an operator.
    pub const UNKNOWN: &str = "idempotency_unknown";
    /// Records out of attempts.
    pub const DEAD: &str = "idempotency_dead";
    /// Records in the store.
    pub const RECORDS: &str = "idempotency_records";
    /// Expired records that cleanup deleted.
    pub const PURGED: &str = "idempotency_purged_total";
    /// 1 while the circuit breaker of a store is open; label `store`.
    pub const CIRCUIT_OPEN: &str = "idempotency_circuit_open";
    /// Reads of copies from an arbiter's front; label `result`: `found`, `missed`, `failed` or `skipped`.
    pub const FRONT_LOOKS: &str = "idempotency_front_looks_total";
    /// Writes of copies to an arbiter's front; label `result`: `done`, `failed` or `dropped`.
    pub const FRONT_PUTS: &str = "idempotency_front_puts_total";
    /// Keys that a failover granted without a reply of the other store; label `why`:
    /// `primary_unreachable` or `secondary_unasked`.
    pub const UNPROTECTED: &str = "idempotency_unprotected_total";
    /// 1 while this process cleans up for all processes that share the store.
    pub const CLEANUP_LEADER: &str = "idempotency_cleanup_leader";
}

/// Buckets for [`name::STORE_LATENCY`], in milliseconds.
pub const STORE_LATENCY_BUCKETS: [f64; 14] =
    [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];

/// Where a replay came from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tier {
    /// A cache in this process.
    Cache,
    Store,
    /// The caller waited for the result of another caller.
    Wait,
}

pub(crate) fn replayed(key: &KeyHash, tier: Tier, age: Option<Duration>) {
    // Literals, so that no label is built for each replay.
    let (tier, hits) = match tier {
        Tier::Cache => ("cache", counter!(name::CACHE_HIT, "tier" => "cache")),
        Tier::Store => ("store", counter!(name::CACHE_HIT, "tier" => "store")),
        Tier::Wait => ("wait", counter!(name::CACHE_HIT, "tier" => "wait")),
    };
    tracing::Span::current().record("idempotency.cache_hit", true);
    tracing::info!(tier, "Idempotent request {key} returned from cache");
    hits.increment(1);
    if let Some(age) = age {
        histogram!(name::DUPLICATE_AGE).record(age.as_secs_f64());
    }
}

pub(crate) fn granted(key: &KeyHash, takeover: bool) {
    tracing::Span::current().record("idempotency.cache_hit", false);
    tracing::debug!("Idempotent request {key} processing");
    counter!(name::CACHE_MISS).increment(1);
    if takeover {
        tracing::warn!("Idempotent request {key} taken over from a lost owner");
        counter!(name::TAKEOVERS).increment(1);
    }
}

pub(crate) fn recorded(key: &KeyHash, ttl: Duration) {
    tracing::debug!("Stored idempotent response {key} with TTL {ttl:?}");
}

pub(crate) fn mismatched(key: &KeyHash) {
    tracing::warn!("Idempotent request {key} was reused for something else");
    counter!(name::KEY_COLLISION).increment(1);
}

pub(crate) fn failed(key: &KeyHash, class: ErrorClass) {
    tracing::debug!("Idempotent request {key} failed: {class}");
    counter!(name::FAILURES, "class" => class.as_str()).increment(1);
}

pub(crate) fn superseded(key: &KeyHash) {
    tracing::warn!("Idempotent request {key} was finished by a lost owner; its result is dropped");
    counter!(name::SUPERSEDED).increment(1);
}

pub(crate) fn unstored(key: &KeyHash, why: &str) {
    tracing::error!("Idempotent request {key} is done, but its outcome is not recorded: {why}");
    counter!(name::OUTCOME_UNSTORED).increment(1);
}

pub(crate) fn became_unknown(key: &KeyHash) {
    tracing::warn!(
        "Idempotent request {key} may have taken effect or not: it waits for an operator, see semel keys get {key}"
    );
    counter!(name::BECAME_UNKNOWN).increment(1);
}

/// Raises the gauge now; the next cleanup sets it.
pub(crate) fn one_more_unknown() {
    gauge!(name::UNKNOWN).increment(1.0);
}

/// A cleanup found `count` lost owners of keys in hold mode. The store does not say which keys.
pub(crate) fn held(count: usize) {
    if count > 0 {
        tracing::warn!(
            "{count} operations lost their owner and wait for an operator, see semel keys list --state unknown"
        );
        counter!(name::BECAME_UNKNOWN).increment(count as u64);
    }
}

pub(crate) fn became_dead(key: &KeyHash) {
    tracing::warn!(
        "Idempotent request {key} is out of attempts: it waits for an operator, see semel keys get {key}"
    );
    counter!(name::BECAME_DEAD).increment(1);
}

/// The metric of one step of one store. The recorder is looked up at every call, since it may be installed late; the
/// name and labels are made once.
#[derive(Clone, Debug)]
pub(crate) struct StoreCall(Key);

impl StoreCall {
    pub(crate) fn new(store: &'static str, step: &'static str) -> Self {
        let labels =
            [("store", store), ("step", step)].map(|(k, v)| Label::from_static_parts(k, v));
        Self(Key::from_parts(name::STORE_LATENCY, labels.to_vec()))
    }

    pub(crate) fn took(&self, took: Duration) {
        const METADATA: Metadata<'_> =
            Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
        let histogram = with_recorder(|recorder| recorder.register_histogram(&self.0, &METADATA));
        histogram.record(took.as_secs_f64() * 1000.0);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of 2^53 records is precise enough")]
pub(crate) fn stats(stats: &Stats) {
    gauge!(name::RECORDS).set(stats.records as f64);
    gauge!(name::UNKNOWN).set(stats.unknown as f64);
    gauge!(name::DEAD).set(stats.dead as f64);
}

pub(crate) fn purged(deleted: usize) {
    counter!(name::PURGED).increment(deleted as u64);
}

pub(crate) fn leads_cleanup(leads: bool) {
    gauge!(name::CLEANUP_LEADER).set(if leads { 1.0 } else { 0.0 });
}

pub(crate) fn circuit(store: &'static str, open: bool) {
    gauge!(name::CIRCUIT_OPEN, "store" => store).set(if open { 1.0 } else { 0.0 });
}

/// Why a failover could not protect a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UnprotectedReason {
    PrimaryUnreachable,
    SecondaryUnasked,
}

pub(crate) fn unprotected(why: UnprotectedReason) {
    let why = match why {
        UnprotectedReason::PrimaryUnreachable => "primary_unreachable",
        UnprotectedReason::SecondaryUnasked => "secondary_unasked",
    };
    counter!(name::UNPROTECTED, "why" => why).increment(1);
}

/// The result of reading a copy from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FrontRead {
    Found,
    Missed,
    Failed,
    Skipped,
}

pub(crate) fn count_front_reads(result: FrontRead, count: usize) {
    let result = match result {
        FrontRead::Found => "found",
        FrontRead::Missed => "missed",
        FrontRead::Failed => "failed",
        FrontRead::Skipped => "skipped",
    };
    counter!(name::FRONT_LOOKS, "result" => result).increment(count as u64);
}

/// The result of writing a copy to the front.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FrontWrite {
    Done,
    Failed,
    Dropped,
}

pub(crate) fn count_front_writes(result: FrontWrite, count: usize) {
    let result = match result {
        FrontWrite::Done => "done",
        FrontWrite::Failed => "failed",
        FrontWrite::Dropped => "dropped",
    };
    if count > 0 {
        counter!(name::FRONT_PUTS, "result" => result).increment(count as u64);
    }
}

/// Raises a gauge by one while it lives.
#[derive(Debug)]
pub(crate) struct GaugeCount(&'static str);

impl GaugeCount {
    pub(crate) fn new(name: &'static str) -> Self {
        gauge!(name).increment(1.0);
        Self(name)
    }
}

impl Drop for GaugeCount {
    fn drop(&mut self) {
        gauge!(self.0).decrement(1.0);
    }
}
