//! A header that is recorded and replayed.

use std::{fmt, str::FromStr};

use http::HeaderName;
use semel::http::RoutePolicy;

use super::text::from_text;

/// The name of a header that may be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHeader(pub HeaderName);

impl FromStr for KeptHeader {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name: HeaderName = text.parse().map_err(|_| {
            format!("{text:?} is no header name; write one, such as x-request-cost")
        })?;
        if RoutePolicy::api().keep_header(name.clone()).check().is_err() {
            return Err(format!("{name} belongs to the first answer alone; leave it out"));
        }
        Ok(Self(name))
    }
}

from_text!(KeptHeader, "a header name such as \"x-request-cost\"");

impl fmt::Display for KeptHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_may_not_be_kept_is_refused() {
        assert_eq!("X-Cost".parse::<KeptHeader>().unwrap().to_string(), "x-cost");
        for bad in ["", "x cost", "x:cost"] {
            assert!(bad.parse::<KeptHeader>().unwrap_err().contains("such as"), "{bad}");
        }
        assert!("Set-Cookie".parse::<KeptHeader>().unwrap_err().contains("leave it out"));
    }
}
