//! The raw settings of a worker, as flags, variables and the section `[worker]` of semel.toml.

use std::path::PathBuf;

use clap::{Args, builder::BoolishValueParser};
use serde::Deserialize;

use crate::settings::{
    raw::{AdminFields, LogFields},
    store::StoreFields,
    value::{
        CountValue, DeadLetterChoice, DurationValue, LostOwnerChoice, MismatchChoice, OrderChoice,
        RecordChoice, RetentionValue, Secret, SizeValue, StatusValue, UnknownTypeChoice,
    },
};

/// The flags of `semel worker`.
#[derive(Args, Debug)]
#[command(mut_arg("admin.ready_needs_upstreams", |it| {
    it.help("Answer /readyz with 503 while the handler cannot be reached")
}))]
pub struct WorkerFlags {
    #[command(flatten)]
    worker: WorkerFields,
    #[command(flatten)]
    store: StoreFields,
    #[command(flatten)]
    admin: AdminFields,
    #[command(flatten)]
    log: LogFields,
    /// File with settings; flags and SEMEL_* variables take precedence [default: semel.toml if it exists]
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE", help_heading = "Operation")]
    config: Option<PathBuf>,
    /// Show what the worker does, with messages in memory, a built-in handler and a temporary store, and end. Does not
    /// go with --store and the settings of the worker, except --name and --concurrency; reads semel.toml only if
    /// --config names it
    #[arg(
        long,
        env = "SEMEL_DEMO",
        help_heading = "Operation",
        value_parser = BoolishValueParser::new()
    )]
    demo: bool,
}

/// What a worker does with messages: the section `[worker]`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Worker")]
pub(crate) struct WorkerFields {
    /// Where messages come from: nats://HOST:PORT/STREAM/CONSUMER | kafka://HOST:PORT/TOPIC?group=GROUP
    #[arg(
        long,
        id = "worker.source",
        env = "SEMEL_SOURCE",
        value_name = "URL",
        hide_env_values = true,
        long_help = SOURCE
    )]
    pub(crate) source: Option<Secret>,
    /// Where events are posted: http://HOST:PORT/PATH
    #[arg(
        long,
        id = "worker.handler",
        env = "SEMEL_HANDLER",
        value_name = "URL",
        hide_env_values = true
    )]
    pub(crate) handler: Option<Secret>,
    /// Where messages go that will not be processed: file:FOLDER | postgres://… | nats://… | kafka://… | drop
    #[arg(
        long,
        id = "worker.dead_letter",
        env = "SEMEL_DEAD_LETTER",
        value_name = "URL",
        hide_env_values = true,
        long_help = DEAD_LETTER
    )]
    pub(crate) dead_letter: Option<Secret>,
    /// Name of this consumer, part of every key: two consumers with different names both get an event [default: the
    /// stream and the consumer of the source, or the topics and the group]
    #[arg(long, id = "worker.name", env = "SEMEL_NAME", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Requests to the handler at the same time, up to 65536 [default: 64]
    #[arg(long, id = "worker.concurrency", env = "SEMEL_CONCURRENCY", value_name = "COUNT")]
    pub(crate) concurrency: Option<CountValue>,
    /// Attempts before an event becomes a dead letter [default: 5]
    #[arg(long, id = "worker.max_attempts", env = "SEMEL_MAX_ATTEMPTS", value_name = "COUNT")]
    pub(crate) max_attempts: Option<CountValue>,
    /// How long the handler may take for one request [default: 60s]
    #[arg(long, id = "worker.handler_timeout", env = "SEMEL_HANDLER_TIMEOUT", value_name = "TIME")]
    pub(crate) handler_timeout: Option<DurationValue>,
    /// Statuses of the handler that are final failures; an event with such a response becomes a dead letter at once
    /// [default: 400,410,413,415,422]
    #[arg(
        long = "permanent-status",
        id = "worker.permanent_status",
        env = "SEMEL_PERMANENT_STATUS",
        value_name = "STATUS",
        value_delimiter = ','
    )]
    pub(crate) permanent_status: Option<Vec<StatusValue>>,
    /// How long a lease lasts: the event of an owner that stops renewing it runs again after this time [default: 30s]
    #[arg(long, id = "worker.lease", env = "SEMEL_LEASE", value_name = "TIME")]
    pub(crate) lease: Option<DurationValue>,
    /// How long an outcome is kept. auto: as long as the source may deliver a message again, and a tenth more; 24h at
    /// least [default: auto]
    #[arg(long, id = "worker.retention", env = "SEMEL_RETENTION", value_name = "TIME")]
    pub(crate) retention: Option<RetentionValue>,
    /// Allow a retention that is shorter than the time in which the source may deliver a message again
    #[arg(
        long,
        id = "worker.allow_short_retention",
        env = "SEMEL_ALLOW_SHORT_RETENTION",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new()
    )]
    pub(crate) allow_short_retention: Option<bool>,
    /// Order of events with the same ordering key [default: strict]
    #[arg(long, id = "worker.order", env = "SEMEL_ORDER", value_name = "ORDER")]
    pub(crate) order: Option<OrderChoice>,
    /// What is kept of an event [default: record]
    #[arg(long, id = "worker.mode", env = "SEMEL_MODE", value_name = "MODE")]
    pub(crate) mode: Option<RecordChoice>,
    /// What happens to an event whose owner was lost [default: rerun]
    #[arg(long, id = "worker.on_lost_owner", env = "SEMEL_ON_LOST_OWNER", value_name = "ACTION")]
    pub(crate) on_lost_owner: Option<LostOwnerChoice>,
    /// What happens to an event with the id of an earlier one and another payload [default: dead-letter]
    #[arg(long, id = "worker.on_mismatch", env = "SEMEL_ON_MISMATCH", value_name = "ACTION")]
    pub(crate) on_mismatch: Option<MismatchChoice>,
    /// What happens to the ordering key of an event that became a dead letter [default: continue]
    #[arg(long, id = "worker.on_dead_letter", env = "SEMEL_ON_DEAD_LETTER", value_name = "ACTION")]
    pub(crate) on_dead_letter: Option<DeadLetterChoice>,
    /// A type of event that the handler takes; repeat it for several, or separate them with commas [default: every type]
    #[arg(
        long = "type",
        id = "worker.types",
        env = "SEMEL_TYPES",
        value_name = "TYPE",
        value_delimiter = ','
    )]
    pub(crate) types: Option<Vec<String>>,
    /// What happens to an event of a type that no --type names [default: dead-letter]
    #[arg(long, id = "worker.unknown_type", env = "SEMEL_UNKNOWN_TYPE", value_name = "ACTION")]
    pub(crate) unknown_type: Option<UnknownTypeChoice>,
    /// Largest payload of a message; a larger one becomes a dead letter [default: 1MiB]
    #[arg(long, id = "worker.max_body", env = "SEMEL_MAX_BODY", value_name = "SIZE")]
    pub(crate) max_body: Option<SizeValue>,
    /// Whether data that is declared to be JSON and is not becomes a dead letter without a request [default: true]
    #[arg(long, id = "worker.check_json", env = "SEMEL_CHECK_JSON", value_name = "BOOL")]
    pub(crate) check_json: Option<bool>,
    #[arg(skip)]
    pub(crate) max_in_flight: Option<CountValue>,
}

const SOURCE: &str = "\
Where messages come from.

  nats://HOST:PORT/STREAM/CONSUMER
                         a durable pull consumer of a NATS JetStream stream;
                         nats+tls:// with TLS, nats://H1:P,H2:P,H3:P/… for a cluster.
                         ?create=true makes the consumer if it does not exist;
                         ?filter=SUBJECT, ?ack-wait=30s and ?ordering-key=subject
  kafka://HOST:PORT/TOPIC[,TOPIC]?group=GROUP
                         a consumer group of Apache Kafka (a build with --features full);
                         kafka+tls:// with TLS, kafka://H1:P,H2:P/… for a cluster,
                         USER:PASSWORD@ and ?sasl.mechanism=SCRAM-SHA-512 for a login;
                         ?offset-reset=latest, ?ordering-key=header:NAME, ?window=5000

Set a URL with a password in SEMEL_SOURCE: other users of the machine see flags.

Example:
  --source nats://127.0.0.1:4222/ORDERS/billing
  --source 'kafka://127.0.0.1:9092/orders?group=billing'";

const DEAD_LETTER: &str = "\
Where messages go that will not be processed, with the reason. `semel dead-letters` lists them and sends them again.

  file:FOLDER            a folder on this machine, one file for each message
  postgres://USER@HOST/DATABASE[?table=NAME]
                         a table
  nats://HOST:PORT/STREAM[?subject=SUBJECT&create=true]
                         a NATS JetStream stream
  kafka://HOST:PORT/TOPIC[?create=true&replicas=3]
                         a Kafka topic (a build with --features full)
  drop                   no copy is kept: the message is logged, counted and lost

Set a URL with a password in SEMEL_DEAD_LETTER: other users of the machine see flags.

Example:
  --dead-letter file:dead-letters";

/// The flags of every `semel dead-letters` command.
#[derive(Args, Debug)]
// Only a long-running process needs these.
#[command(mut_arg("cache", |it| it.hide(true)), mut_arg("migrate", |it| it.hide(true)))]
pub struct DeadLetterFlags {
    #[command(flatten)]
    sink: DeadLetterFields,
    #[command(flatten)]
    store: StoreFields,
    /// File with settings; only those of the store, and the source and dead letters of [worker], are used
    /// [default: semel.toml if it exists]
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE", help_heading = "Store")]
    config: Option<PathBuf>,
}

/// The flags of `semel doctor`.
#[derive(Args, Debug)]
// Only a long-running process needs these.
#[command(mut_arg("cache", |it| it.hide(true)), mut_arg("migrate", |it| it.hide(true)))]
pub struct DoctorFlags {
    #[command(flatten)]
    worker: DoctorFields,
    #[command(flatten)]
    store: StoreFields,
    /// File with settings; only those of the store, and those of [worker] that are above, are used [default: semel.toml
    /// if it exists]
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE", help_heading = "Store")]
    config: Option<PathBuf>,
}

/// The settings of a worker that `semel doctor` compares with those of its brokers.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Worker")]
pub(super) struct DoctorFields {
    /// The source of the worker, to examine it, too
    #[arg(
        long,
        id = "worker.source",
        env = "SEMEL_SOURCE",
        value_name = "URL",
        hide_env_values = true,
        long_help = SOURCE
    )]
    source: Option<Secret>,
    /// The dead letters of the worker, to examine them, too
    #[arg(
        long,
        id = "worker.dead_letter",
        env = "SEMEL_DEAD_LETTER",
        value_name = "URL",
        hide_env_values = true,
        long_help = DEAD_LETTER
    )]
    dead_letter: Option<Secret>,
    /// As the worker has it [default: 64]
    #[arg(long, id = "worker.concurrency", env = "SEMEL_CONCURRENCY", value_name = "COUNT")]
    concurrency: Option<CountValue>,
    /// As the worker has it [default: 5]
    #[arg(long, id = "worker.max_attempts", env = "SEMEL_MAX_ATTEMPTS", value_name = "COUNT")]
    max_attempts: Option<CountValue>,
    /// As the worker has it [default: 30s]
    #[arg(long, id = "worker.lease", env = "SEMEL_LEASE", value_name = "TIME")]
    lease: Option<DurationValue>,
    /// As the worker has it [default: auto]
    #[arg(long, id = "worker.retention", env = "SEMEL_RETENTION", value_name = "TIME")]
    retention: Option<RetentionValue>,
    /// As the worker has it
    #[arg(
        long,
        id = "worker.allow_short_retention",
        env = "SEMEL_ALLOW_SHORT_RETENTION",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new()
    )]
    allow_short_retention: Option<bool>,
}

impl DoctorFields {
    /// Replaces what the file says.
    pub(super) fn set(self, worker: &mut WorkerFields) {
        worker.source = self.source.or(worker.source.take());
        worker.dead_letter = self.dead_letter.or(worker.dead_letter.take());
        worker.concurrency = self.concurrency.or(worker.concurrency);
        worker.max_attempts = self.max_attempts.or(worker.max_attempts);
        worker.lease = self.lease.or(worker.lease);
        worker.retention = self.retention.or(worker.retention);
        worker.allow_short_retention = self.allow_short_retention.or(worker.allow_short_retention);
    }
}

/// The sink that a command reads, and the broker to which it publishes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Dead letters")]
pub(super) struct DeadLetterFields {
    /// Where the dead letters are: file:FOLDER | postgres://… | nats://… | kafka://…
    #[arg(
        long,
        id = "worker.dead_letter",
        env = "SEMEL_DEAD_LETTER",
        value_name = "URL",
        hide_env_values = true,
        long_help = DEAD_LETTER
    )]
    dead_letter: Option<Secret>,
    /// The broker to which a redrive publishes [default: the source of the worker]
    #[arg(
        long = "to",
        id = "worker.source",
        env = "SEMEL_SOURCE",
        value_name = "URL",
        hide_env_values = true
    )]
    to: Option<Secret>,
}

impl DeadLetterFields {
    /// Replaces what the file says.
    pub(super) fn set(self, worker: &mut WorkerFields) {
        worker.dead_letter = self.dead_letter.or(worker.dead_letter.take());
        worker.source = self.to.or(worker.source.take());
    }
}
