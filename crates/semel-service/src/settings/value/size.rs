//! A size in bytes, such as `1MiB`.

use std::{fmt, str::FromStr};

use super::text::from_text;

/// A number of bytes, written as `1048576`, `64KiB`, `1MiB` or `1GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeValue(pub(crate) usize);

const UNITS: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)];

impl FromStr for SizeValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            "not a size; write bytes, or KiB, MiB or GiB, such as 1048576, 64KiB or 1MiB".to_owned()
        };
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = &text[..text.len() - unit.len()];
        let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        let number: usize = number.parse().map_err(|_| bad())?;
        number
            .checked_mul(*bytes)
            .map(Self)
            .ok_or_else(|| "more than memory can hold; use less".into())
    }
}

from_text!(SizeValue, "a size such as \"1MiB\"");

impl fmt::Display for SizeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, unit)| self.0 > 0 && self.0.is_multiple_of(*unit));
        let (name, unit) = whole.unwrap_or(&("", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_shown_as_it_is_written() {
        for (text, bytes) in
            [("0", 0), ("1", 1), ("64KiB", 65_536), ("1MiB", 1 << 20), ("2GiB", 2 << 30)]
        {
            let size: SizeValue = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, text));
        }
        assert_eq!("1048576".parse(), Ok(SizeValue(1 << 20)));
    }

    #[test]
    fn anything_else_is_refused_with_what_it_may_look_like() {
        for bad in ["", "MiB", "1MB", "1mib", "1 MiB", "-1", "1.5MiB", "1k", "+1"] {
            let error = bad.parse::<SizeValue>().unwrap_err();
            assert!(error.contains("such as 1048576, 64KiB or 1MiB"), "{bad:?}: {error}");
        }
        assert!("18446744073709551615GiB".parse::<SizeValue>().is_err());
    }
}
