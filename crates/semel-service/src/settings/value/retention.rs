//! How long a worker keeps outcomes: a duration, or `auto`.

use std::str::FromStr;

use semel_consumer::Retention;

use super::{DurationValue, text::from_text};

/// `auto`, or a duration such as `24h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetentionValue {
    Auto,
    Fixed(DurationValue),
}

impl RetentionValue {
    pub(crate) const fn retention(self) -> Retention {
        match self {
            Self::Auto => Retention::Auto,
            Self::Fixed(time) => Retention::Fixed(time.0),
        }
    }
}

impl FromStr for RetentionValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let fixed = text.parse().map(Self::Fixed);
        fixed.map_err(|what: String| format!("{what}; or write auto"))
    }
}

from_text!(RetentionValue, "\"auto\" or a duration such as \"24h\"");

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_retention_is_automatic_or_a_duration() {
        let retention = |text: &str| text.parse::<RetentionValue>().unwrap().retention();
        assert_eq!(retention("auto"), Retention::Auto);
        assert_eq!(retention("2h"), Retention::Fixed(Duration::from_secs(7200)));
        for bad in ["", "Auto", "2", "forever"] {
            assert!(bad.parse::<RetentionValue>().unwrap_err().ends_with("or write auto"), "{bad}");
        }
    }
}
