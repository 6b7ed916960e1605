//! The checked settings of a worker.

use std::{path::PathBuf, time::Duration};

use http::StatusCode;
use semel::{OnLostOwner, Redacted, StoreOptions, StoreUrl};
use semel_consumer::{
    Mode, OnDeadLetter, Order, Retention,
    pipeline::{OnMismatch, UnknownType},
};

use crate::settings::{AdminSettings, LogSettings, StoreConfig, value::HandlerUrl};

/// What a worker runs with.
#[derive(Debug)]
pub struct WorkerConfig {
    /// The URL of the broker. `None` only in the demo.
    pub source: Option<Redacted<String>>,
    /// Where events are posted. `None` only in the demo.
    pub handler: Option<HandlerUrl>,
    /// Where messages go that will not be processed. `None` only in the demo.
    pub dead_letters: Option<DeadLetterTarget>,
    /// `None` only in the demo: a temporary folder.
    pub store: Option<StoreUrl>,
    /// How the store is opened.
    pub store_options: StoreOptions,
    /// The file of the seal keys, if they are from one.
    pub seal_file: Option<PathBuf>,
    /// The name of this service in a shared store.
    pub namespace: String,
    /// The name of the consumer; `None`: that of the source.
    pub name: Option<String>,
    /// The order of events with the same ordering key.
    pub order: Order,
    /// What is recorded.
    pub mode: Mode,
    /// For events with the id of an earlier one and another payload.
    pub on_mismatch: OnMismatch,
    /// What happens to an ordering key after a dead letter.
    pub on_dead_letter: OnDeadLetter,
    /// The types that the handler takes; all of them if empty.
    pub types: Vec<String>,
    /// For events of another type.
    pub unknown_type: UnknownType,
    /// How long outcomes are kept.
    pub retention: Retention,
    /// Whether the retention may be shorter than the source's redelivery window.
    pub allow_short_retention: bool,
    /// Requests to the handler at the same time.
    pub concurrency: usize,
    /// Messages that are received and not settled; `None`: twice the concurrency.
    pub max_in_flight: Option<usize>,
    /// Attempts before an event becomes a dead letter.
    pub max_attempts: u32,
    /// How long a lease lasts.
    pub lease: Duration,
    /// How long an attempt may take before its lease is no longer renewed.
    pub max_run: Duration,
    /// What happens to an event whose owner was lost.
    pub on_lost_owner: OnLostOwner,
    /// How long the handler may take for one request.
    pub handler_timeout: Duration,
    /// Statuses of the handler that are final failures.
    pub permanent_statuses: Vec<StatusCode>,
    /// The largest payload of a message.
    pub max_body: usize,
    /// Whether data that is declared to be JSON is read before the handler gets it.
    pub check_json: bool,
    /// The admin listener; `None` without one.
    pub admin: Option<AdminSettings>,
    /// How long events in progress may take after the signal to stop.
    pub shutdown_grace: Duration,
    /// What is logged.
    pub log: LogSettings,
    /// True for `--demo`.
    pub demo: bool,
    /// Settings that are allowed and probably a mistake; the worker logs them.
    pub warnings: Vec<String>,
}

impl WorkerConfig {
    /// The default of `handler_timeout`.
    pub const HANDLER_TIMEOUT: Duration = Duration::from_secs(60);
    /// The default of `permanent_statuses`.
    pub const PERMANENT_STATUSES: [StatusCode; 5] = [
        StatusCode::BAD_REQUEST,
        StatusCode::GONE,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        StatusCode::UNPROCESSABLE_ENTITY,
    ];
}

/// Where messages go that will not be processed.
#[derive(Clone, Debug)]
pub enum DeadLetterTarget {
    /// No copy is kept.
    Drop,
    /// A sink with this URL.
    Url(Redacted<String>),
}

/// The part of a worker's settings that is compared with those of its brokers.
#[derive(Debug)]
pub struct EventsConfig {
    /// The URL of the source; `None` if only dead letters are named.
    pub source: Option<Redacted<String>>,
    /// Where messages go that will not be processed; `None` if the settings do not say it.
    pub dead_letters: Option<DeadLetterTarget>,
    /// How long outcomes are kept.
    pub retention: Retention,
    /// Whether the retention may be shorter than the source's redelivery window.
    pub allow_short_retention: bool,
    /// Requests to the handler at the same time.
    pub concurrency: usize,
    /// Messages that are received and not settled; `None`: twice the concurrency.
    pub max_in_flight: Option<usize>,
    /// Attempts before an event becomes a dead letter.
    pub max_attempts: u32,
    /// How long a lease lasts.
    pub lease: Duration,
}

/// What `semel doctor` runs with.
#[derive(Debug)]
pub struct DoctorConfig {
    /// The store that is examined.
    pub store: StoreConfig,
    /// The source and the dead letters that are examined; `None` if the settings name neither.
    pub events: Option<EventsConfig>,
}

/// What `semel dead-letters` runs with.
#[derive(Debug)]
pub struct DeadLettersConfig {
    /// The sink that is read.
    pub dead_letters: Redacted<String>,
    /// The broker to which a redrive publishes; `None` if the settings name none.
    pub to: Option<Redacted<String>>,
    /// The store in which a redrive opens keys again.
    pub store: StoreConfig,
}
