//! The values that settings are written as: one spelling for flags, variables and semel.toml.

mod address;
mod choices;
mod count;
mod header;
mod matching;
mod pointer;
mod secret;
mod size;
mod status;
mod text;
mod time;
mod upstream_url;
mod who;

pub use choices::{LogFormat, LogLevel};
pub use count::Count;
pub use header::KeptHeader;
pub use secret::Token;
pub use time::Time;

pub(super) use address::Address;
pub(super) use choices::{
    LostOwner, ModeChoice, Preset, ServerErrorsChoice, StoreDownChoice, named,
};
pub(super) use matching::Matching;
pub(super) use pointer::JsonPointer;
pub(super) use secret::Secret;
pub(super) use size::Size;
pub(super) use status::MismatchStatus;
pub(super) use upstream_url::UpstreamUrl;
pub(super) use who::Principal;
