//! A number of things.

use std::{fmt, num::NonZeroU32, str::FromStr};

use super::text::from_text;

/// A number of things, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountValue(pub NonZeroU32);

impl FromStr for CountValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |_| format!("not a count; write a whole number from 1 to {}", u32::MAX);
        text.parse().map(Self).map_err(bad)
    }
}

from_text!(CountValue, "a whole number from 1 on");

impl fmt::Display for CountValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_at_least_one() {
        assert_eq!("10000".parse::<CountValue>().unwrap().to_string(), "10000");
        for bad in ["", "0", "-1", "1.5", "x", "4294967296"] {
            assert!(bad.parse::<CountValue>().unwrap_err().contains("from 1"), "{bad}");
        }
    }
}
