//! Checks the settings of a worker.

use std::time::Duration;

use http::StatusCode;
use semel::{Policy, Redacted};
use semel_consumer::{Consumer, pipeline::ValidationLayer};

use super::{
    config::{DeadLetterTarget, DeadLettersConfig, WorkerConfig},
    fields::WorkerFields,
};
use crate::settings::{
    BadSettings, GatewayConfig, LogLevel, LogSettings, StoreConfig,
    build::ConfigBuilder,
    field_names::closest_name,
    origin::SettingOrigin,
    policy::PolicyFields,
    store::default_url,
    value::{CountValue, DurationValue, HandlerUrl, RetentionValue, Secret, UnknownTypeChoice},
};

/// Schemes of sources, as they are written.
const SOURCES: [&str; 2] = ["nats", "nats+tls"];
/// Schemes of dead-letter sinks.
const SINKS: [&str; 5] = ["file", "postgres", "postgresql", "nats", "nats+tls"];
/// The word for no sink.
const DROP: &str = "drop";
/// How much longer than the handler may take a lease is renewed: connecting and recording take time, too.
const RUN_MARGIN: Duration = Duration::from_secs(60);

impl ConfigBuilder<'_> {
    /// The configuration of a worker, or all problems.
    pub(super) fn build_worker(mut self) -> Result<WorkerConfig, BadSettings> {
        self.refuse_in_demo(&["worker.source", "worker.handler", "worker.dead_letter", "store"]);
        let worker = &self.settings.worker;
        let store = self.store();
        let store_options = self.store_options(store.as_ref());
        self.migrates_tables(store.as_ref(), &store_options);
        let handler_timeout = self.handler_timeout();
        let max_run = Policy::MAX_RUN.max(handler_timeout.saturating_add(RUN_MARGIN));
        let max_run = max_run.max(worker.lease.map_or(Duration::ZERO, |it| it.0));
        self.check_worker_policy(max_run);
        let count = |count: Option<CountValue>| count.map(|it| it.0.get() as usize);
        let config = WorkerConfig {
            source: self.source(),
            handler: self.handler(),
            dead_letters: self.dead_letters(),
            namespace: self.namespace(store.as_ref()),
            store_options,
            seal_file: self.seal_file(),
            store,
            name: self.consumer_name(),
            order: worker.order.unwrap_or_default().order(),
            mode: worker.mode.unwrap_or_default().mode(),
            on_mismatch: worker.on_mismatch.unwrap_or_default().on_mismatch(),
            on_dead_letter: worker.on_dead_letter.unwrap_or_default().on_dead_letter(),
            types: worker.types.clone().unwrap_or_default(),
            unknown_type: worker.unknown_type.unwrap_or_default().unknown_type(),
            retention: worker.retention.unwrap_or(RetentionValue::Auto).retention(),
            allow_short_retention: worker.allow_short_retention.unwrap_or_default(),
            concurrency: count(worker.concurrency).unwrap_or(Consumer::CONCURRENCY),
            max_in_flight: self.max_in_flight(),
            max_attempts: worker.max_attempts.map_or(Policy::EVENT_ATTEMPTS, |it| it.0.get()),
            lease: worker.lease.map_or(Policy::LEASE, |it| it.0),
            max_run,
            on_lost_owner: worker.on_lost_owner.map(|it| it.on_lost_owner()).unwrap_or_default(),
            handler_timeout,
            permanent_statuses: permanent_statuses(worker),
            max_body: worker.max_body.map_or(ValidationLayer::MAX_BYTES, |it| it.0),
            check_json: worker.check_json.unwrap_or(true),
            admin: self.admin(None),
            shutdown_grace: self.shutdown_grace(),
            log: self.worker_log(),
            demo: self.demo(),
            warnings: self.worker_warnings(),
        };
        BadSettings::unless_empty(self.problems, config)
    }

    /// The configuration of `semel dead-letters`, or all problems.
    pub(super) fn build_dead_letters(mut self) -> Result<DeadLettersConfig, BadSettings> {
        let dead_letters = match self.dead_letters() {
            Some(DeadLetterTarget::Url(url)) => Some(url),
            Some(DeadLetterTarget::Drop) => {
                let what = "is drop: no copy is kept, so there is nothing to list";
                self.problem("worker.dead_letter", what);
                None
            }
            None => None,
        };
        let to = self.settings.worker.source.is_some().then(|| self.source()).flatten();
        let url = self.store().unwrap_or_else(default_url);
        let namespace = self.settings.store.namespace.is_some().then(|| self.namespace(None));
        let is_named = self.settings.store.store.is_some();
        let options = self.store_options(Some(&url));
        let store = StoreConfig { url, is_named, options, namespace };
        let dead_letters = dead_letters.unwrap_or_else(|| Redacted::new(String::new()));
        let config = DeadLettersConfig { dead_letters, to, store };
        BadSettings::unless_empty(self.problems, config)
    }

    fn source(&mut self) -> Option<Redacted<String>> {
        let path = "worker.source";
        match &self.settings.worker.source {
            Some(url) => self.url_with_scheme(path, url, &SOURCES, "sources"),
            None => self.required(path, NO_SOURCE),
        }
    }

    fn handler(&mut self) -> Option<HandlerUrl> {
        let path = "worker.handler";
        match &self.settings.worker.handler {
            Some(url) => url.0.parse().map_err(|what: String| self.problem(path, what)).ok(),
            None => self.required(path, NO_HANDLER),
        }
    }

    fn dead_letters(&mut self) -> Option<DeadLetterTarget> {
        let path = "worker.dead_letter";
        match &self.settings.worker.dead_letter {
            Some(url) if url.0 == DROP => Some(DeadLetterTarget::Drop),
            Some(url) => {
                let url = self.url_with_scheme(path, url, &SINKS, "dead-letter sinks");
                url.map(DeadLetterTarget::Url)
            }
            None => self.required(path, NO_DEAD_LETTER),
        }
    }

    /// Notes that a setting is missing, unless the demo brings it or its value could not be read.
    fn required<T>(&mut self, path: &str, what: &str) -> Option<T> {
        if !self.demo() && self.origins.of(path) == SettingOrigin::Default {
            self.problem(path, what);
        }
        None
    }

    /// The URL, if it has one of these schemes. The problem shows nothing else of the URL: it may hold a password.
    fn url_with_scheme(
        &mut self,
        path: &str,
        url: &Secret,
        schemes: &[&str],
        what: &str,
    ) -> Option<Redacted<String>> {
        let scheme = url.0.split_once(':').map_or("", |(scheme, _)| scheme);
        if schemes.contains(&scheme) {
            return Some(Redacted::new(url.0.clone()));
        }
        let known = schemes.join(": ");
        let near = match closest_name(scheme, schemes.iter().copied()) {
            Some(closest) => format!(" (did you mean {closest}:?)"),
            None => String::new(),
        };
        let problem =
            format!("begins with no known scheme; {what} of this build are {known}:{near}");
        self.problem(path, problem);
        None
    }

    fn consumer_name(&mut self) -> Option<String> {
        let name = self.settings.worker.name.clone()?;
        let scope = semel::Scope::new("any", semel::Principal::Anonymous, &*name);
        if let Err(error) = scope.key("any") {
            self.problem("worker.name", format!("{error}; write a name, such as billing"));
        }
        Some(name)
    }

    fn handler_timeout(&mut self) -> Duration {
        let set = self.settings.worker.handler_timeout;
        self.positive("worker.handler_timeout", set, WorkerConfig::HANDLER_TIMEOUT)
    }

    /// Checks the bounds of what becomes the policy of the engine.
    fn check_worker_policy(&mut self, max_run: Duration) {
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
        // The time to run follows from the time of the handler.
        let field = if bad.field == "max_run" { "handler_timeout" } else { bad.field.as_str() };
        self.problem(&format!("worker.{field}"), bad.what);
    }

    fn max_in_flight(&mut self) -> Option<usize> {
        let worker = &self.settings.worker;
        let max_in_flight = worker.max_in_flight?.0.get() as usize;
        let concurrency =
            worker.concurrency.map_or(Consumer::CONCURRENCY, |it| it.0.get() as usize);
        if max_in_flight < concurrency {
            let what = format!("is {max_in_flight}, less than concurrency, which is {concurrency}");
            self.problem("worker.max_in_flight", format!("{what}; use at least {concurrency}"));
        }
        Some(max_in_flight)
    }

    fn shutdown_grace(&self) -> Duration {
        let set = self.settings.gateway.shutdown_grace;
        set.map_or(GatewayConfig::SHUTDOWN_GRACE, |it| it.0)
    }

    /// The demo explains itself; its log has only what goes wrong, unless another level is set.
    fn worker_log(&self) -> LogSettings {
        let log = self.log();
        match self.demo() && self.settings.log.level.is_none() {
            true => LogSettings { level: LogLevel::Warn, ..log },
            false => log,
        }
    }

    fn worker_warnings(&mut self) -> Vec<String> {
        let worker = &self.settings.worker;
        let is_default = worker.unknown_type.unwrap_or_default() == UnknownTypeChoice::default();
        if !is_default && worker.types.as_ref().is_none_or(Vec::is_empty) {
            self.warn("--unknown-type has no effect without --type: every type is taken");
        }
        std::mem::take(&mut self.context.warnings)
    }
}

fn permanent_statuses(worker: &WorkerFields) -> Vec<StatusCode> {
    match &worker.permanent_status {
        Some(statuses) => statuses.iter().map(|status| status.0).collect(),
        None => WorkerConfig::PERMANENT_STATUSES.to_vec(),
    }
}

const NO_SOURCE: &str = "\
no source: name the stream and the consumer that messages are read from
  --source nats://127.0.0.1:4222/ORDERS/billing
or set SEMEL_SOURCE, or source = \"nats://…\" in [worker] of semel.toml; or try `semel worker --demo`";

const NO_HANDLER: &str = "\
no handler: name the HTTP endpoint that events are posted to
  --handler http://127.0.0.1:3000/events
or set SEMEL_HANDLER, or handler = \"http://…\" in [worker] of semel.toml";

const NO_DEAD_LETTER: &str = "\
no dead-letter sink: messages that cannot be processed have to go somewhere. Add one of
  --dead-letter file:dead-letters          a folder on this machine
  --dead-letter postgres://app@db/app      a table
  --dead-letter nats://HOST:PORT/STREAM    a NATS JetStream stream
  --dead-letter drop                       no copy is kept: such messages are lost
or set SEMEL_DEAD_LETTER, or dead_letter = \"…\" in [worker] of semel.toml";
