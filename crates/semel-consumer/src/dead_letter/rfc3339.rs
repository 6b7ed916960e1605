//! Times as text: RFC 3339 in UTC, to the microsecond.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400;
/// The last microsecond of the year 9999, the last year that RFC 3339 can write.
const LAST: u64 = 253_402_300_799_999_999;

/// Microseconds since 1970; a time out of range counts as the first or the last one in it.
pub(crate) fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(LAST).min(LAST)
}

/// The time this many microseconds after 1970 began.
pub(crate) fn from_micros(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros.min(LAST))
}

/// `2026-11-15T19:23:08.123456Z`.
pub(crate) fn format(time: SystemTime) -> String {
    let micros = micros(time);
    let (seconds, fraction) = (micros / SECOND, micros % SECOND);
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
}

/// Reads what [`format`] writes, with any number of digits after the second.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !in_range || fraction.is_empty() || !fraction.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
    let micros: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    Some(from_micros(seconds * SECOND + micros))
}

/// Three numbers with these counts of digits.
fn numbers(text: &str, separator: char, digits: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|it| it.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Days since 1970 of a date in the Gregorian calendar. Years begin in March here, so that the leap day is the last.
const fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + in_year - 719_468
}

/// Year, month and day of a number of days since 1970, the reverse of [`days`].
const fn date(days: u64) -> (u64, u64, u64) {
    const FOUR_CENTURIES: u64 = 146_097;
    let days = days + 719_468;
    let (era, in_era) = (days / FOUR_CENTURIES, days % FOUR_CENTURIES);
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_back_to_the_microsecond() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399_000_001, "2000-02-28T23:59:59.000001Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_709_251_199_999_999, "2024-02-29T23:59:59.999999Z"),
            (1_735_689_599_000_000, "2024-12-31T23:59:59.000000Z"),
            (LAST, "9999-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(format(from_micros(micros)), text);
            assert_eq!(parse(text).map(self::micros), Some(micros), "{text}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_is_read_back() {
        for day in 0..146_097 {
            let (year, month, date) = date(day);
            assert_eq!(days(year, month, date), day);
        }
    }

    #[test]
    fn fractions_of_any_length_are_read_and_other_texts_are_not() {
        let at = |text| parse(text).map(micros);
        assert_eq!(at("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(at("1970-01-01T00:00:01.5Z"), Some(1_500_000));
        assert_eq!(at("1970-01-01T00:00:00.123456789Z"), Some(123_456));
        for bad in [
            "yesterday",
            "1970-01-01",
            "1970-13-01T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.xZ",
            "1970-1-01T00:00:00Z",
            "+970-01-01T00:00:00Z",
            "1970-01-01T00:00:00+01:00",
        ] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_time_out_of_range_is_the_nearest_one_in_it() {
        assert_eq!(micros(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(micros(UNIX_EPOCH + Duration::from_secs(300_000_000_000)), LAST);
    }
}
