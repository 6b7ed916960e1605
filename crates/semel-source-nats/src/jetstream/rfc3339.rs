//! Parses the RFC 3339 times of a server, which are always UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Parses `2026-11-15T19:23:08.123456789Z`.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':')?;
    if !(1..=12).contains(&month) || !(1970..=9999).contains(&year) || day == 0 {
        return None;
    }
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(UNIX_EPOCH + Duration::new(seconds, nanos))
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let parts: Vec<u64> =
        text.split(separator).map(|part| part.parse().ok()).collect::<Option<_>>()?;
    parts.try_into().ok()
}

/// Days since 1970 of a date in the Gregorian calendar, with years that begin in March.
const fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + in_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_to_the_nanosecond() {
        let at = |text| parse(text).map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_nanos());
        assert_eq!(at("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(at("2000-02-29T12:00:00.5Z"), Some(951_825_600_500_000_000));
        assert_eq!(at("2023-11-14T22:13:20.123456789Z"), Some(1_700_000_000_123_456_789));
        for wrong in [
            "yesterday",
            "2024-13-01T00:00:00Z",
            "2024-01-00T00:00:00Z",
            "2024-01-01T00:00:00+01:00",
        ] {
            assert_eq!(at(wrong), None);
        }
    }
}
