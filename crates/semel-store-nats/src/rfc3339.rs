//! Parses the RFC 3339 times of a server, which are always UTC.

use semel_core::Timestamp;

/// Reads `2026-11-15T19:23:08.123456789Z`.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':')?;
    if !(1..=12).contains(&month) || !(1970..=9999).contains(&year) {
        return None;
    }
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    let millis: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some(Timestamp::from_millis(seconds * 1000 + millis))
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
    fn times_are_read_to_the_millisecond() {
        let at = |text| parse(text).map(Timestamp::as_millis);
        assert_eq!(at("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(at("2000-02-29T12:00:00.5Z"), Some(951_825_600_500));
        assert_eq!(at("2023-11-14T22:13:20.123456789Z"), Some(1_700_000_000_123));
        assert_eq!(at("2024-12-31T23:59:59.999Z"), Some(1_735_689_599_999));
        assert_eq!(at("yesterday"), None);
        assert_eq!(at("2024-13-01T00:00:00Z"), None);
    }
}
