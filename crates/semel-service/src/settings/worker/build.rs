//! Checks the settings of a worker.

use std::time::Duration;

use http::StatusCode;
use semel::{Policy, Redacted};

use super::{
    config::{DeadLetterTarget, DeadLettersConfig, DoctorConfig, EventsConfig, WorkerConfig},
    fields::WorkerFields,
};
use crate::settings::{
    BadSettings, GatewayConfig, LogLevel, LogSettings,
    build::ConfigBuilder,
    field_names::{closest_name, fields_of},
    origin::SettingOrigin,
    value::{HandlerUrl, RetentionValue, Secret, UnknownTypeChoice},
};

/// The URLs that a setting may have.
struct KnownUrls {
    what: &'static str,
    /// As they are written.
    schemes: &'static [&'static [&'static str]],
    example: &'static str,
}

/// The schemes of all brokers. `semel-worker` says which of them are not in this build.
const BROKER_SCHEMES: &[&str] = &["nats", "nats+tls", "kafka", "kafka+tls"];
const SOURCES: KnownUrls = KnownUrls {
    what: "sources",
    schemes: &[BROKER_SCHEMES],
    example: "nats://HOST:PORT/STREAM/CONSUMER or kafka://HOST:PORT/TOPIC?group=GROUP",
};
const BROKERS: KnownUrls =
    KnownUrls { what: "brokers", example: "nats://HOST:PORT or kafka://HOST:PORT", ..SOURCES };
const SINKS: KnownUrls = KnownUrls {
    what: "dead-letter sinks",
    schemes: &[&["file", "postgres", "postgresql"], BROKER_SCHEMES],
    example: "file:FOLDER",
};
/// The word for no sink.
const DROP: &str = "drop";
/// How much longer than the handler may take a lease is renewed: connecting and recording take time, too.
const RUN_MARGIN: Duration = Duration::from_secs(60);

impl ConfigBuilder<'_> {
    /// The configuration of a worker, or all problems.
    pub(super) fn build_worker(mut self) -> Result<WorkerConfig, BadSettings> {
        self.check_worker_demo();
        let worker = &self.settings.worker;
        let store = self.store();
        let store_options = self.store_options(store.as_ref());
        self.migrates_tables(store.as_ref(), &store_options);
        let dead_letters = self.dead_letters(NO_DEAD_LETTER);
        self.keep_folders_apart(store.as_ref(), dead_letters.as_ref());
        let handler_timeout = self.handler_timeout();
        let max_run = Policy::MAX_RUN.max(handler_timeout.saturating_add(RUN_MARGIN));
        let max_run = max_run.max(worker.lease.map_or(Duration::ZERO, |it| it.0));
        self.check_worker_policy(max_run);
        let config = WorkerConfig {
            source: self.source(),
            handler: self.handler(),
            dead_letters,
            namespace: self.namespace(store.as_ref()),
            store_options,
            seal_file: self.seal_file(),
            store,
            name: self.consumer_name(),
            order: worker.order.unwrap_or_default().order(),
            mode: worker.mode.unwrap_or_default().mode(),
            on_mismatch: worker.on_mismatch.unwrap_or_default().on_mismatch(),
            on_dead_letter: worker.on_dead_letter.unwrap_or_default().on_dead_letter(),
            types: self.types(),
            unknown_type: worker.unknown_type.unwrap_or_default().unknown_type(),
            retention: worker.retention.unwrap_or(RetentionValue::Auto).retention(),
            allow_short_retention: worker.allow_short_retention.unwrap_or_default(),
            concurrency: self.concurrency(),
            max_in_flight: self.max_in_flight(),
            max_attempts: worker.max_attempts.map_or(Policy::EVENT_ATTEMPTS, |it| it.0.get()),
            lease: worker.lease.map_or(Policy::LEASE, |it| it.0),
            max_run,
            on_lost_owner: worker.on_lost_owner.map(|it| it.on_lost_owner()).unwrap_or_default(),
            handler_timeout,
            permanent_statuses: permanent_statuses(worker),
            max_body: self.max_body(),
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
        let dead_letters = match self.dead_letters(NO_LETTERS) {
            Some(DeadLetterTarget::Url(url)) => Some(url),
            Some(DeadLetterTarget::Drop) => {
                let what = "is drop: no copy is kept, so there is nothing to list";
                self.problem("worker.dead_letter", what);
                None
            }
            None => None,
        };
        let to = self.settings.worker.source.as_ref();
        let to = to.and_then(|url| self.url_with_scheme("worker.source", url, &BROKERS));
        let store = self.store_alone();
        let dead_letters = dead_letters.unwrap_or_else(|| Redacted::new(String::new()));
        let config = DeadLettersConfig { dead_letters, to, store };
        BadSettings::unless_empty(self.problems, config)
    }

    /// The configuration of `semel doctor`, or all problems. Settings of a worker count only if they name a source or
    /// dead letters.
    pub(super) fn build_doctor(mut self) -> Result<DoctorConfig, BadSettings> {
        let worker = &self.settings.worker;
        let is_named = worker.source.is_some() || worker.dead_letter.is_some();
        let events = is_named.then(|| self.events());
        let store = self.store_alone();
        BadSettings::unless_empty(self.problems, DoctorConfig { store, events })
    }

    fn events(&mut self) -> EventsConfig {
        let worker = &self.settings.worker;
        let source = worker.source.as_ref();
        let source = source.and_then(|url| self.url_with_scheme("worker.source", url, &SOURCES));
        let dead_letters = worker.dead_letter.as_ref().and_then(|_| self.dead_letters(""));
        let lease = worker.lease.map_or(Policy::LEASE, |it| it.0);
        self.check_worker_policy(Policy::MAX_RUN.max(lease));
        EventsConfig {
            source,
            dead_letters,
            retention: worker.retention.unwrap_or(RetentionValue::Auto).retention(),
            allow_short_retention: worker.allow_short_retention.unwrap_or_default(),
            concurrency: self.concurrency(),
            max_in_flight: self.max_in_flight(),
            max_attempts: worker.max_attempts.map_or(Policy::EVENT_ATTEMPTS, |it| it.0.get()),
            lease,
        }
    }

    /// Refuses settings that the demo has itself, and settings that would change its result.
    fn check_worker_demo(&mut self) {
        let harmless = |field: &&&str| !["name", "concurrency"].contains(*field);
        let fields = fields_of::<WorkerFields>().iter().filter(harmless);
        let fields = fields.map(|field| format!("worker.{field}"));
        self.refuse_in_demo(&fields.chain(["store".to_owned()]).collect::<Vec<_>>());
    }

    fn source(&mut self) -> Option<Redacted<String>> {
        let path = "worker.source";
        match &self.settings.worker.source {
            Some(url) => self.url_with_scheme(path, url, &SOURCES),
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

    /// The sink; `missing` is the problem if there is none.
    fn dead_letters(&mut self, missing: &str) -> Option<DeadLetterTarget> {
        let path = "worker.dead_letter";
        match &self.settings.worker.dead_letter {
            Some(url) if url.0 == DROP => Some(DeadLetterTarget::Drop),
            Some(url) => {
                let url = self.url_with_scheme(path, url, &SINKS);
                url.map(DeadLetterTarget::Url)
            }
            None => self.required(path, missing),
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
        known: &KnownUrls,
    ) -> Option<Redacted<String>> {
        let KnownUrls { what, schemes, example } = known;
        let scheme = url.0.split_once(':').map_or("", |(scheme, _)| scheme);
        let schemes = schemes.concat();
        if schemes.contains(&scheme) {
            return Some(Redacted::new(url.0.clone()));
        }
        let known = schemes.join(": ");
        let near = closest_name(scheme, schemes);
        let near = near.map_or_else(String::new, |it| format!(" (did you mean {it}:?)"));
        let problem = format!(
            "begins with no known scheme{near}; write it like {example} ({what}: {known}:)"
        );
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
no source: name what messages are read from, such as a stream and its consumer, or a topic and a group
  --source nats://127.0.0.1:4222/ORDERS/billing
  --source 'kafka://127.0.0.1:9092/orders?group=billing'
or set SEMEL_SOURCE, or source = \"nats://…\" in [worker] of semel.toml; or try `semel worker --demo`";

const NO_HANDLER: &str = "\
no handler: name the HTTP endpoint that events are posted to
  --handler http://127.0.0.1:3000/events
or set SEMEL_HANDLER, or handler = \"http://…\" in [worker] of semel.toml";

const NO_LETTERS: &str = "\
no dead letters: name those of the worker, as its setting does. One of
  --dead-letter file:FOLDER
  --dead-letter postgres://USER@HOST/DATABASE[?table=NAME]
  --dead-letter nats://HOST:PORT/STREAM[?subject=SUBJECT]
  --dead-letter kafka://HOST:PORT/TOPIC
or set SEMEL_DEAD_LETTER, or dead_letter = \"…\" in [worker] of semel.toml";

const NO_DEAD_LETTER: &str = "\
no dead-letter sink: messages that cannot be processed have to go somewhere. Add one of
  --dead-letter file:dead-letters          a folder on this machine
  --dead-letter postgres://app@db/app      a table
  --dead-letter nats://HOST:PORT/STREAM    a NATS JetStream stream
  --dead-letter kafka://HOST:PORT/TOPIC    a Kafka topic
  --dead-letter drop                       no copy is kept: such messages are lost
or set SEMEL_DEAD_LETTER, or dead_letter = \"…\" in [worker] of semel.toml";
