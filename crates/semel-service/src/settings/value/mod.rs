//! The values of settings, written the same way in flags, variables and semel.toml.

mod address;
mod choices;
mod count;
mod duration;
mod handler_url;
mod kept_header;
mod mismatch_status;
mod pointer;
mod principal;
mod retention;
mod route_match;
mod secret;
mod size;
mod status;
mod text;
mod upstream_url;
mod worker_choices;

pub use choices::{LogFormat, LogLevel};
pub use count::CountValue;
pub use duration::DurationValue;
pub use handler_url::HandlerUrl;
pub use kept_header::KeptHeader;
pub use secret::AdminToken;

pub(super) use address::ListenAddress;
pub(super) use choices::{
    LostOwnerChoice, ModeChoice, Preset, ServerErrorsChoice, StoreDownChoice, named,
};
pub(super) use mismatch_status::MismatchStatus;
pub(super) use pointer::JsonPointer;
pub(super) use principal::PrincipalSetting;
pub(super) use retention::RetentionValue;
pub(super) use route_match::RouteMatch;
pub(super) use secret::Secret;
pub(super) use size::SizeValue;
pub(super) use status::StatusValue;
pub(super) use upstream_url::UpstreamUrl;
pub(super) use worker_choices::{
    DeadLetterChoice, MismatchChoice, OrderChoice, RecordChoice, UnknownTypeChoice,
};
