//! The status of the response to a mismatch.

use std::{fmt, str::FromStr};

use clap::{ValueEnum, builder::PossibleValue};
use http::StatusCode;

use super::text::from_text;

/// The status of the response to a key that was used for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MismatchStatus {
    Conflict,
    Unprocessable,
}

impl MismatchStatus {
    pub(crate) const fn code(self) -> StatusCode {
        match self {
            Self::Conflict => StatusCode::CONFLICT,
            Self::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

impl ValueEnum for MismatchStatus {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Conflict, Self::Unprocessable]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Conflict => PossibleValue::new("409"),
            Self::Unprocessable => PossibleValue::new("422").help("as in the draft standard"),
        })
    }
}

impl FromStr for MismatchStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        <Self as ValueEnum>::from_str(text, false)
            .map_err(|_| "not 409 or 422; write one of them".into())
    }
}

from_text!(MismatchStatus, "409 or 422");

impl fmt::Display for MismatchStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code().as_str())
    }
}
