//! Settings that are one of a few words.

use clap::ValueEnum;
use semel::{
    OnLostOwner, Policy, StoreDown,
    http::{Mode, ServerErrors},
};
use serde::Deserialize;

/// The word for a choice, as it is written.
pub(crate) fn named(choice: impl ValueEnum) -> String {
    let value = choice.to_possible_value().expect("no choice here is hidden");
    value.get_name().to_owned()
}

/// The preset that a policy starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Preset {
    /// kept 24 h, failures 1 h
    Api,
    /// kept 30 days, failures 7 days
    Financial,
    /// kept 7 days, failures 24 h
    Saga,
}

impl Preset {
    pub(crate) const fn policy(self) -> Policy {
        match self {
            Self::Api => Policy::api(),
            Self::Financial => Policy::financial(),
            Self::Saga => Policy::saga(),
        }
    }
}

/// The mode of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ModeChoice {
    /// keys are claimed, outcomes recorded and replayed
    Enforce,
    /// requests pass unchanged; what enforce would have done is counted
    Observe,
    /// requests pass unchanged
    Off,
}

impl ModeChoice {
    pub(crate) const fn mode(self) -> Mode {
        match self {
            Self::Enforce => Mode::Enforce,
            Self::Observe => Mode::Observe,
            Self::Off => Mode::Off,
        }
    }
}

/// What happens to a key whose owner was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LostOwnerChoice {
    /// a retry runs again, with the same downstream key
    Rerun,
    /// the operation does not run until an operator has decided
    Hold,
}

impl LostOwnerChoice {
    pub(crate) const fn on_lost_owner(self) -> OnLostOwner {
        match self {
            Self::Rerun => OnLostOwner::Rerun,
            Self::Hold => OnLostOwner::Hold,
        }
    }
}

/// What happens while the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreDownChoice {
    Refuse,
    Run,
}

impl StoreDownChoice {
    pub(crate) const fn store_down(self) -> StoreDown {
        match self {
            Self::Refuse => StoreDown::Refuse,
            Self::Run => StoreDown::RunUnprotected,
        }
    }
}

/// What a 5xx response of the upstream means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ServerErrorsChoice {
    Retry,
    Final,
}

impl ServerErrorsChoice {
    pub(crate) const fn server_errors(self) -> ServerErrors {
        match self {
            Self::Retry => ServerErrors::Retry,
            Self::Final => ServerErrors::Final,
        }
    }
}

/// The level of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "clap would print the comments in --help")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// The format of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "clap would print the comments in --help")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}
