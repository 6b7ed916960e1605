//! Times, as people and as programs read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use semel::{Span, Timestamp};

/// This machine's time.
pub(crate) fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

/// A time of a library, in milliseconds.
pub(crate) fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(Span::from(since).as_millis())
}

/// `3m 20s ago` or `in 23h 59m`.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    match at > now {
        true => format!("in {}", length(at.since(now))),
        false => format!("{} ago", length(now.since(at))),
    }
}

/// `2026-11-15 15:08:13Z (3m 20s ago)`.
pub(crate) fn both(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", absolute(at), ago(at, now))
}

/// `2026-11-15 15:08:13Z`.
pub(super) fn absolute(at: Timestamp) -> String {
    let Some((year, month, day)) = date(at) else { return "after the year 9999".to_owned() };
    let (hour, minute, second) = clock(at);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// RFC 3339 with milliseconds.
pub(crate) fn rfc3339(at: Timestamp) -> Option<String> {
    let (year, month, day) = date(at)?;
    let (hour, minute, second) = clock(at);
    let millis = at.as_millis() % 1000;
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"))
}

/// The two largest units of a duration.
pub(crate) fn length(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [("d", seconds / 86_400), ("h", seconds / 3600 % 24), ("m", seconds / 60 % 60)];
    let mut parts = units.into_iter().chain([("s", seconds % 60)]).skip_while(|(_, it)| *it == 0);
    match (parts.next(), parts.next()) {
        (None, _) if span.is_zero() => "0s".to_owned(),
        (None, _) => format!("{}ms", span.as_millis()),
        (Some((unit, count)), Some((next, more))) if more > 0 => {
            format!("{count}{unit} {more}{next}")
        }
        (Some((unit, count)), _) => format!("{count}{unit}"),
    }
}

fn clock(at: Timestamp) -> (u64, u64, u64) {
    let seconds = at.as_millis() / 1000 % 86_400;
    (seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Year, month and day, up to the year 9999. Years are counted one by one: there are few of them.
fn date(at: Timestamp) -> Option<(u64, usize, u64)> {
    let (mut year, mut days) = (1970, at.as_millis() / 86_400_000);
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        match days < length {
            true => break,
            false => (year, days) = (year + 1, days - length),
        }
        if year > 9999 {
            return None;
        }
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 0;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        month += 1;
        match days < length {
            true => break,
            false => days -= length,
        }
    }
    Some((year, month, days + 1))
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_dates() {
        for (millis, shown) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399_000, "2000-02-28 23:59:59Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (1_709_251_199_999, "2024-02-29 23:59:59Z"),
            (1_735_689_599_000, "2024-12-31 23:59:59Z"),
            (1_763_219_293_123, "2025-11-15 15:08:13Z"),
            (253_402_300_799_000, "9999-12-31 23:59:59Z"),
            (u64::MAX, "after the year 9999"),
        ] {
            assert_eq!(absolute(Timestamp::from_millis(millis)), shown);
        }
        let at = Timestamp::from_millis(1_763_219_293_123);
        assert_eq!(rfc3339(at).as_deref(), Some("2025-11-15T15:08:13.123Z"));
        assert_eq!(rfc3339(Timestamp::from_millis(u64::MAX)), None);
    }

    #[test]
    fn distances_have_two_units() {
        let now = Timestamp::from_millis(10_000_000_000);
        let before = |millis: u64| ago(Timestamp::from_millis(10_000_000_000 - millis), now);
        assert_eq!(before(0), "0s ago");
        assert_eq!(before(250), "250ms ago");
        assert_eq!(before(61_000), "1m 1s ago");
        assert_eq!(before(7_200_000), "2h ago");
        assert_eq!(before(86_400_000 + 60_000), "1d ago");
        assert_eq!(ago(now.after(Duration::from_secs(86_399)), now), "in 23h 59m");
    }
}
