//! A status of a handler's response.

use std::{fmt, str::FromStr};

use http::StatusCode;

use super::text::from_text;

/// A status from 400 to 599.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusValue(pub(crate) StatusCode);

impl FromStr for StatusValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err(
                "is empty; write a status from 400 to 599, such as 422, or leave it out".to_owned()
            );
        }
        let status = text.parse::<StatusCode>().ok();
        let status = status.filter(|it| it.is_client_error() || it.is_server_error());
        status.map(Self).ok_or_else(|| "not a status from 400 to 599, such as 422".to_owned())
    }
}

from_text!(StatusValue, "a status such as 422");

impl fmt::Display for StatusValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_of_an_error_is_accepted() {
        assert_eq!("422".parse::<StatusValue>().unwrap().to_string(), "422");
        assert_eq!(" 422 ".parse(), Ok(StatusValue(StatusCode::UNPROCESSABLE_ENTITY)));
        for bad in ["", "200", "302", "99", "600", "x"] {
            assert!(bad.parse::<StatusValue>().unwrap_err().contains("400 to 599"), "{bad}");
        }
    }
}
