//! The limits of a worker's settings.

use std::time::Duration;

use semel_consumer::{Consumer, pipeline::ValidationLayer};

use super::WorkerConfig;
use crate::settings::{
    build::ConfigBuilder,
    policy::PolicyFields,
    value::{CountValue, DurationValue, RetentionValue},
};

/// How long the handler may take at most. The engine renews a lease for a week, and connecting and recording take time,
/// too.
const MAX_HANDLER_TIMEOUT: Duration = Duration::from_secs(6 * 24 * 60 * 60);
/// Each request at the same time has a connection, and a machine has no more ports than this.
const MAX_CONCURRENCY: usize = 65_536;

impl ConfigBuilder<'_> {
    pub(super) fn handler_timeout(&mut self) -> Duration {
        let (path, set) = ("worker.handler_timeout", self.settings.worker.handler_timeout);
        let timeout = self.positive(path, set, WorkerConfig::HANDLER_TIMEOUT);
        if timeout > MAX_HANDLER_TIMEOUT {
            let (set, most) = (DurationValue(timeout), DurationValue(MAX_HANDLER_TIMEOUT));
            self.problem(path, format!("is {set}; it must be from 1ms to {most}"));
        }
        timeout.min(MAX_HANDLER_TIMEOUT)
    }

    /// Checks the bounds of what becomes the policy of the engine.
    pub(super) fn check_worker_policy(&mut self, max_run: Duration) {
        let worker = &self.settings.worker;
        let retention = match worker.retention {
            Some(RetentionValue::Fixed(time)) => Some(time),
            Some(RetentionValue::Auto) | None => None,
        };
        let fields = PolicyFields {
            lease: worker.lease,
            max_run: Some(DurationValue(max_run)),
            retention,
            ..PolicyFields::default()
        };
        let Err(bad) = fields.build() else { return };
        self.problem(&format!("worker.{}", bad.field), bad.what);
    }

    pub(super) fn concurrency(&mut self) -> usize {
        let concurrency = count(self.settings.worker.concurrency);
        self.at_most("worker.concurrency", concurrency, MAX_CONCURRENCY);
        concurrency.unwrap_or(Consumer::CONCURRENCY)
    }

    pub(super) fn max_in_flight(&mut self) -> Option<usize> {
        let path = "worker.max_in_flight";
        let worker = &self.settings.worker;
        let max_in_flight = count(worker.max_in_flight)?;
        let concurrency = count(worker.concurrency).unwrap_or(Consumer::CONCURRENCY);
        if max_in_flight < concurrency {
            let what = format!("is {max_in_flight}, less than concurrency, which is {concurrency}");
            self.problem(path, format!("{what}; use at least {concurrency}"));
        }
        self.at_most(path, Some(max_in_flight), 2 * MAX_CONCURRENCY);
        Some(max_in_flight)
    }

    fn at_most(&mut self, path: &str, count: Option<usize>, most: usize) {
        if let Some(count) = count.filter(|count| *count > most) {
            self.problem(path, format!("is {count}; it must be from 1 to {most}"));
        }
    }

    pub(super) fn max_body(&mut self) -> usize {
        let max_body = self.settings.worker.max_body.map_or(ValidationLayer::MAX_BYTES, |it| it.0);
        if max_body == 0 {
            let what = "is 0; every message with a payload would be a dead letter, use at least 1";
            self.problem("worker.max_body", what);
        }
        max_body
    }

    /// The types that the handler takes. An empty one is probably a mistake in a script, and no event has it.
    pub(super) fn types(&mut self) -> Vec<String> {
        let types = self.settings.worker.types.iter().flatten();
        let types: Vec<_> = types.map(|it| it.trim().to_owned()).collect();
        if types.iter().any(String::is_empty) {
            let what = "has an empty type; remove it, or leave the setting out to take every type";
            self.problem("worker.types", what);
        }
        types
    }
}

fn count(count: Option<CountValue>) -> Option<usize> {
    count.map(|it| it.0.get() as usize)
}
