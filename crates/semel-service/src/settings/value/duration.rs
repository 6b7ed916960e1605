//! A duration, such as `30s`.

use std::{fmt, str::FromStr, time::Duration};

use super::text::from_text;

/// A duration as it is written: a whole number and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationValue(pub Duration);

/// Largest first, so that 24 h are not shown as minutes.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl FromStr for DurationValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            "not a duration; write a whole number and its unit (ms, s, m, h or d), such as 500ms, \
             30s, 10m, 24h or 7d"
                .to_owned()
        };
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = &text[..text.len() - unit.len()];
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        let number: u64 = number.parse().map_err(|_| bad())?;
        let millis = number.checked_mul(*millis).ok_or("too long; use less")?;
        Ok(Self(Duration::from_millis(millis)))
    }
}

from_text!(DurationValue, "a duration such as \"30s\"");

impl fmt::Display for DurationValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis == 0 {
            return f.write_str("0s");
        }
        let whole = UNITS.iter().find(|(_, unit)| millis.is_multiple_of(u128::from(*unit)));
        let (name, unit) = whole.expect("every duration here is whole milliseconds");
        // One day is usually written as 24h.
        match millis / u128::from(*unit) {
            1 if *name == "d" => f.write_str("24h"),
            number => write!(f, "{number}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_shown_as_it_is_written() {
        for (text, millis) in [
            ("500ms", 500),
            ("0s", 0),
            ("30s", 30_000),
            ("10m", 600_000),
            ("24h", 86_400_000),
            ("7d", 604_800_000),
        ] {
            let time: DurationValue = text.parse().unwrap();
            assert_eq!(time.0, Duration::from_millis(millis));
            assert_eq!(time.to_string(), text);
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_it_may_look_like() {
        for bad in ["", "30", "s", "-1s", "1.5s", "30 s", "30S", "1w", "1h30m", "٣s", "+3s"] {
            let error = bad.parse::<DurationValue>().unwrap_err();
            assert!(error.contains("such as 500ms"), "{bad:?}: {error}");
        }
        assert!("18446744073709551615d".parse::<DurationValue>().is_err());
    }
}
