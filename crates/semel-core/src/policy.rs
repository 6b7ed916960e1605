//! The policy of an operation: retention, lease, attempts, waiting, and what happens when the store fails.

use std::{num::NonZeroU32, time::Duration};

use crate::{Error, Failure, OnLostOwner, Result, Terms};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// Which final failures are recorded and replayed.
#[derive(Clone, Copy, Debug, Default)]
pub enum RecordFailures {
    /// All of them.
    #[default]
    All,
    /// Those for which the predicate is true; the others release the key for a retry.
    When(fn(&Failure) -> bool),
    /// None: every final failure releases the key for a retry.
    Never,
}

impl RecordFailures {
    pub(crate) fn picks(self, failure: &Failure) -> bool {
        match self {
            Self::All => true,
            Self::When(predicate) => predicate(failure),
            Self::Never => false,
        }
    }
}

/// What happens when the store does not answer a claim, or is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreDown {
    /// The work does not run; the caller gets an error that says when to retry.
    #[default]
    Refuse,
    /// The work runs without protection: duplicates run too.
    RunUnprotected,
}

/// How one kind of operation is protected. Start from a preset and change what differs.
///
/// ```
/// use semel_core::{OnLostOwner, Policy};
/// use std::time::Duration;
///
/// let policy = Policy::financial().on_lost_owner(OnLostOwner::Hold).lease(Duration::from_secs(10));
/// assert!(policy.check().is_ok());
/// assert!(policy.lease(Duration::ZERO).check().unwrap_err().to_string().contains("lease"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub(crate) retention: Duration,
    pub(crate) failure_retention: Duration,
    pub(crate) record_failures: RecordFailures,
    pub(crate) on_lost_owner: OnLostOwner,
    pub(crate) lease: Duration,
    pub(crate) max_run: Duration,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) wait: Duration,
    pub(crate) backoff: Duration,
    pub(crate) record_budget: Duration,
    pub(crate) max_outcome_bytes: usize,
    pub(crate) store_down: StoreDown,
    pub(crate) store_timeout: Duration,
}

impl Policy {
    /// How long an owner holds a key without a renewal.
    pub const LEASE: Duration = Duration::from_secs(30);
    /// How long a run may take before its lease is no longer renewed.
    pub const MAX_RUN: Duration = Duration::from_secs(600);
    /// How long a caller waits for the outcome of another caller.
    pub const WAIT: Duration = Duration::from_secs(10);
    /// How long a caller waits for a store that does not answer.
    pub const STORE_TIMEOUT: Duration = Duration::from_secs(1);
    /// How long a key cannot be claimed after a run whose effect is not known.
    pub const BACKOFF: Duration = Duration::from_secs(1);
    /// How long recording is retried when the store fails after the work is done.
    pub const RECORD_BUDGET: Duration = Duration::from_secs(60);
    /// Larger outcomes are recorded with their body omitted.
    pub const MAX_OUTCOME_BYTES: usize = 1024 * 1024;
    /// Attempts at an event before it is dead.
    pub const EVENT_ATTEMPTS: u32 = 5;

    /// For requests to an API: kept 24 h, failures 1 h. The default.
    #[must_use]
    pub const fn api() -> Self {
        Self {
            retention: DAY,
            failure_retention: HOUR,
            record_failures: RecordFailures::All,
            on_lost_owner: OnLostOwner::Rerun,
            lease: Self::LEASE,
            max_run: Self::MAX_RUN,
            max_attempts: None,
            wait: Self::WAIT,
            backoff: Self::BACKOFF,
            record_budget: Self::RECORD_BUDGET,
            max_outcome_bytes: Self::MAX_OUTCOME_BYTES,
            store_down: StoreDown::Refuse,
            store_timeout: Self::STORE_TIMEOUT,
        }
    }

    /// For money: kept 30 days, failures 7 days.
    #[must_use]
    pub const fn financial() -> Self {
        Self::api().kept(DAY.saturating_mul(30), DAY.saturating_mul(7))
    }

    /// For events: kept 1 h, failures 15 min, dead after 5 attempts.
    #[must_use]
    pub const fn events() -> Self {
        Self::api().kept(HOUR, MINUTE.saturating_mul(15)).max_attempts(Self::EVENT_ATTEMPTS)
    }

    /// For steps of a saga: kept 7 days, failures 24 h.
    #[must_use]
    pub const fn saga() -> Self {
        Self::api().kept(DAY.saturating_mul(7), DAY)
    }

    const fn kept(self, retention: Duration, failure_retention: Duration) -> Self {
        self.retention(retention).failure_retention(failure_retention)
    }

    /// How long a success is kept, from completion.
    #[must_use]
    pub const fn retention(self, retention: Duration) -> Self {
        Self { retention, ..self }
    }

    /// How long a final failure or a dead key is kept.
    #[must_use]
    pub const fn failure_retention(self, failure_retention: Duration) -> Self {
        Self { failure_retention, ..self }
    }

    /// Which final failures are recorded.
    #[must_use]
    pub const fn record_failures(self, record_failures: RecordFailures) -> Self {
        Self { record_failures, ..self }
    }

    /// What happens to a key whose owner was lost.
    #[must_use]
    pub const fn on_lost_owner(self, on_lost_owner: OnLostOwner) -> Self {
        Self { on_lost_owner, ..self }
    }

    /// How long an owner holds a key without a renewal. It renews three times in that time.
    #[must_use]
    pub const fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// How long a run may take before its lease is no longer renewed.
    #[must_use]
    pub const fn max_run(self, max_run: Duration) -> Self {
        Self { max_run, ..self }
    }

    /// Attempts before the key is dead, counted when they start.
    #[must_use]
    pub const fn max_attempts(self, max_attempts: u32) -> Self {
        Self { max_attempts: Some(max_attempts), ..self }
    }

    /// How long a caller waits for the outcome of another run of its key. With zero it does not wait.
    #[must_use]
    pub const fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// How long a key cannot be claimed after a run whose effect is not known.
    #[must_use]
    pub const fn backoff(self, backoff: Duration) -> Self {
        Self { backoff, ..self }
    }

    /// How long recording is retried when the store fails after the work is done.
    #[must_use]
    pub const fn record_budget(self, record_budget: Duration) -> Self {
        Self { record_budget, ..self }
    }

    /// Larger outcomes are recorded with their body omitted.
    #[must_use]
    pub const fn max_outcome_bytes(self, max_outcome_bytes: usize) -> Self {
        Self { max_outcome_bytes, ..self }
    }

    /// What happens when the store does not answer a claim.
    #[must_use]
    pub const fn store_down(self, store_down: StoreDown) -> Self {
        Self { store_down, ..self }
    }

    /// How long a claim may take, with its repetitions, before the store counts as down and
    /// [`Policy::store_down`] decides: 10 ms to an hour. A store that is known to be down gets a quarter of a second
    /// at most. A call of a store in this process, such as one on a local disk, may take as long as [`Policy::wait`],
    /// if that is longer: such a store cannot be unreachable, only slow.
    ///
    /// A claim that the store grants later than this is released. Its work did not run, but it counts as one of
    /// [`Policy::max_attempts`].
    #[must_use]
    pub const fn store_timeout(self, store_timeout: Duration) -> Self {
        Self { store_timeout, ..self }
    }

    /// Checks that all fields are within their bounds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) with the field and what it may be.
    pub fn check(&self) -> Result<()> {
        let ms = Duration::from_millis;
        check_range("retention", self.retention, ms(1), Self::MAX_RETENTION)?;
        check_range("failure_retention", self.failure_retention, ms(1), Self::MAX_RETENTION)?;
        check_range("lease", self.lease, Self::MIN_LEASE, HOUR)?;
        check_range("max_run", self.max_run, self.lease, DAY.saturating_mul(7))?;
        check_range("wait", self.wait, Duration::ZERO, HOUR)?;
        check_range("store_timeout", self.store_timeout, ms(10), HOUR)?;
        check_range("backoff", self.backoff, Duration::ZERO, HOUR)?;
        check_range("record_budget", self.record_budget, Duration::ZERO, HOUR)?;
        if self.max_attempts == Some(0) {
            return Err(Error::invalid("policy: max_attempts is 0; the work could never run"));
        }
        if !(Self::MIN_OUTCOME_BYTES..=Self::MAX_OUTCOME_LIMIT).contains(&self.max_outcome_bytes) {
            return Err(Error::invalid(format!(
                "policy: max_outcome_bytes is {}; it must be from {} to {}",
                self.max_outcome_bytes,
                Self::MIN_OUTCOME_BYTES,
                Self::MAX_OUTCOME_LIMIT
            )));
        }
        match (self.on_lost_owner, self.record_failures) {
            (OnLostOwner::Hold, RecordFailures::When(_) | RecordFailures::Never) => {
                Err(Error::invalid(
                    "policy: hold needs record_failures All; a failure that is not recorded would be \
                 left Unknown",
                ))
            }
            (OnLostOwner::Hold, RecordFailures::All) | (OnLostOwner::Rerun, _) => Ok(()),
        }
    }

    /// The longest retention: ten years.
    pub const MAX_RETENTION: Duration = DAY.saturating_mul(3650);
    /// The shortest lease a renewal can keep up with.
    pub const MIN_LEASE: Duration = Duration::from_millis(20);
    /// Enough for an outcome without a body.
    pub const MIN_OUTCOME_BYTES: usize = 1024;
    /// The largest limit that can be set.
    pub const MAX_OUTCOME_LIMIT: usize = 32 * 1024 * 1024;

    /// The terms that a record keeps of this policy.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            lease: self.lease.into(),
            on_lost_owner: self.on_lost_owner,
            max_attempts: self.max_attempts.and_then(NonZeroU32::new),
            retention: self.retention.into(),
            failure_retention: self.failure_retention.into(),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::api()
    }
}

fn check_range(field: &str, value: Duration, min: Duration, max: Duration) -> Result<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("policy: {field} is {value:?}; it must be from {min:?} to {max:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retentions(policy: Policy) -> (u64, u64) {
        (policy.retention.as_secs(), policy.failure_retention.as_secs())
    }

    #[test]
    fn presets_keep_what_they_promise() {
        assert_eq!(retentions(Policy::financial()), (30 * 86_400, 7 * 86_400));
        assert_eq!(retentions(Policy::api()), (86_400, 3600));
        assert_eq!(retentions(Policy::events()), (3600, 900));
        assert_eq!(retentions(Policy::saga()), (7 * 86_400, 86_400));
        assert_eq!(Policy::events().max_attempts, Some(5));
        assert_eq!(Policy::api().max_attempts, None);
    }

    #[test]
    fn defaults_are_the_published_ones() {
        let policy = Policy::default();
        assert_eq!(policy.lease, Duration::from_secs(30));
        assert_eq!(policy.max_run, Duration::from_secs(600));
        assert_eq!(policy.wait, Duration::from_secs(10));
        assert_eq!(policy.store_timeout, Duration::from_secs(1));
        assert_eq!(policy.record_budget, Duration::from_secs(60));
        assert_eq!(policy.max_outcome_bytes, 1 << 20);
        assert_eq!(policy.store_down, StoreDown::Refuse);
        assert_eq!(policy.on_lost_owner, OnLostOwner::Rerun);
    }

    #[test]
    fn every_preset_is_valid() {
        for policy in [Policy::financial(), Policy::api(), Policy::events(), Policy::saga()] {
            policy.check().unwrap();
        }
    }

    #[test]
    fn absurd_values_are_refused_by_name() {
        let (zero, max) = (Duration::ZERO, Duration::MAX);
        let bad = [
            ("retention", Policy::api().retention(zero)),
            ("retention", Policy::api().retention(max)),
            ("failure_retention", Policy::api().failure_retention(max)),
            ("lease", Policy::api().lease(zero)),
            ("lease", Policy::api().lease(max)),
            ("max_run", Policy::api().max_run(Duration::from_secs(1))),
            ("max_run", Policy::api().max_run(max)),
            ("wait", Policy::api().wait(max)),
            ("store_timeout", Policy::api().store_timeout(zero)),
            ("store_timeout", Policy::api().store_timeout(max)),
            ("backoff", Policy::api().backoff(max)),
            ("record_budget", Policy::api().record_budget(max)),
            ("max_attempts", Policy::api().max_attempts(0)),
            ("max_outcome_bytes", Policy::api().max_outcome_bytes(0)),
            ("max_outcome_bytes", Policy::api().max_outcome_bytes(usize::MAX)),
        ];
        for (field, policy) in bad {
            let error = policy.check().unwrap_err().to_string();
            assert!(error.contains(field), "{field}: {error}");
        }
    }

    #[test]
    fn hold_refuses_to_leave_failures_unrecorded() {
        let policy = Policy::api().on_lost_owner(OnLostOwner::Hold);
        assert!(policy.check().is_ok());
        assert!(policy.record_failures(RecordFailures::Never).check().is_err());
    }
}
