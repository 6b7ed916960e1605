//! The metrics of a consumer, and the log lines that operators search for. Labels never contain keys.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// The names of the published metrics. All have the label `consumer`.
pub mod name {
    /// Seconds that a handler ran.
    pub const HANDLER_SECONDS: &str = "consumer_handler_seconds";
    /// Deliveries that were settled; label `outcome`: `completed`, `duplicate`, `failed`, `dead_letter`, `skipped`,
    /// `retry`, `busy`, `store_down`, `returned` or `unconfirmed`.
    pub const SETTLED: &str = "consumer_settled_total";
    /// Messages that the broker had delivered before.
    pub const REDELIVERIES: &str = "consumer_redeliveries_total";
    /// Messages that wait in the broker.
    pub const LAG: &str = "consumer_lag";
    /// 1 while the consumer receives no messages: an operator paused it, or the circuit breaker is open.
    pub const PAUSED: &str = "consumer_paused";
    /// 0 closed, 1 half-open, 2 open.
    pub const BREAKER_STATE: &str = "consumer_breaker_state";
    /// Deliveries that are received and not settled.
    pub const IN_FLIGHT: &str = "consumer_in_flight";
    /// Messages that became dead letters; label `reason`.
    pub const DEAD_LETTERS: &str = "idempotency_dead_letters_total";
}

/// Buckets for [`name::HANDLER_SECONDS`].
pub const HANDLER_BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0];

/// How a delivery was settled, as the label `outcome` of [`name::SETTLED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The handler ran, and its success is recorded.
    Completed,
    /// An earlier copy was processed.
    Duplicate,
    /// The handler failed for good. The failure is recorded, and the message is a dead letter.
    Failed,
    /// A dead letter without a recorded failure.
    DeadLetter,
    /// No handler takes this type.
    Skipped,
    Retry,
    /// Another copy runs.
    Busy,
    /// The store or the dead-letter sink is down.
    StoreDown,
    /// Given back unprocessed by a shutdown.
    Returned,
}

const OUTCOMES: [(Settled, &str); 9] = [
    (Settled::Completed, "completed"),
    (Settled::Duplicate, "duplicate"),
    (Settled::Failed, "failed"),
    (Settled::DeadLetter, "dead_letter"),
    (Settled::Skipped, "skipped"),
    (Settled::Retry, "retry"),
    (Settled::Busy, "busy"),
    (Settled::StoreDown, "store_down"),
    (Settled::Returned, "returned"),
];

/// The metrics of one consumer, registered once: a lookup for each message would cost more than the message.
#[derive(Clone)]
pub(crate) struct ConsumerMetrics {
    settled: [Counter; OUTCOMES.len()],
    unconfirmed: Counter,
    redeliveries: Counter,
    handler: Histogram,
    pub(crate) lag: Gauge,
    pub(crate) paused: Gauge,
    pub(crate) breaker: Gauge,
    pub(crate) in_flight: Gauge,
}

impl ConsumerMetrics {
    pub(crate) fn new(consumer: &str) -> Self {
        let label = || consumer.to_owned();
        let settled = |outcome: &'static str| counter!(name::SETTLED, "consumer" => label(), "outcome" => outcome);
        Self {
            settled: OUTCOMES.map(|(_, outcome)| settled(outcome)),
            unconfirmed: settled("unconfirmed"),
            redeliveries: counter!(name::REDELIVERIES, "consumer" => label()),
            handler: histogram!(name::HANDLER_SECONDS, "consumer" => label()),
            lag: gauge!(name::LAG, "consumer" => label()),
            paused: gauge!(name::PAUSED, "consumer" => label()),
            breaker: gauge!(name::BREAKER_STATE, "consumer" => label()),
            in_flight: gauge!(name::IN_FLIGHT, "consumer" => label()),
        }
    }

    pub(crate) fn settled(&self, how: Settled) {
        self.settled[how as usize].increment(1);
    }

    /// The broker did not confirm: the message may come again.
    pub(crate) fn unconfirmed(&self) {
        self.unconfirmed.increment(1);
    }

    pub(crate) fn redelivered(&self) {
        self.redeliveries.increment(1);
    }

    pub(crate) fn handled(&self, took: Duration) {
        self.handler.record(took.as_secs_f64());
    }
}

impl std::fmt::Debug for ConsumerMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConsumerMetrics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_at_its_own_index() {
        for (at, (how, _)) in OUTCOMES.iter().enumerate() {
            assert_eq!(*how as usize, at);
        }
    }
}
