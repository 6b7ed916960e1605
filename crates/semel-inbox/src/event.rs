//! What identifies an event for an inbox.

use std::fmt;

use semel_core::{Error, Result};

/// One event: its id, its type, and the day that its producer gave it.
///
/// ```
/// # use semel_inbox::InboxEvent;
/// let id = "6f2c0b1e-7d0a-4a5e-9f3a-0c1d2e3f4a5b";
/// let event = InboxEvent::new(id, "UserRegistered")?.occurred_on("2026-03-01T08:15:00Z")?;
/// # Ok::<_, semel_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct InboxEvent {
    id: String,
    event_type: String,
    day: Option<String>,
}

impl InboxEvent {
    const ID_AT_MOST: usize = 255;
    const TYPE_AT_MOST: usize = 100;

    /// An event with the id that every copy of it carries.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when a part is empty, too long, or has control
    /// characters.
    pub fn new(id: impl fmt::Display, event_type: impl Into<String>) -> Result<Self> {
        let (id, event_type) = (id.to_string(), event_type.into());
        check("the id of an event", &id, Self::ID_AT_MOST)?;
        check("the type of an event", &event_type, Self::TYPE_AT_MOST)?;
        Ok(Self { id, event_type, day: None })
    }

    /// Sets the day that the producer gave the event: a date, or a time that begins with one. Every copy must carry
    /// the same day, so a broker's time of delivery or publication does not fit.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when it does not begin with `YYYY-MM-DD`.
    pub fn occurred_on(self, day: impl fmt::Display) -> Result<Self> {
        let text = day.to_string();
        let day = text.get(..10).filter(|day| is_day(day)).ok_or_else(|| {
            Error::invalid("the day of an event: use YYYY-MM-DD, or a time that begins with it")
        })?;
        Ok(Self { day: Some(day.to_owned()), ..self })
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The type.
    #[must_use]
    pub fn event_type(&self) -> &str {
        &self.event_type
    }

    /// The day as `YYYY-MM-DD`, if it was given one.
    #[must_use]
    pub fn day(&self) -> Option<&str> {
        self.day.as_deref()
    }

    /// The id in the form in which the server writes a UUID.
    pub(crate) fn uuid(&self) -> Result<String> {
        let digits: String = self.id.chars().filter(|it| *it != '-').collect();
        let is_uuid = digits.len() == 32
            && digits.bytes().all(|it| it.is_ascii_hexdigit())
            && [32, 36].contains(&self.id.len());
        if !is_uuid {
            let what =
                "the id of an event: this table keeps UUIDs; send one, or use the variant Full";
            return Err(Error::invalid(what));
        }
        let it = digits.to_ascii_lowercase();
        Ok([&it[..8], &it[8..12], &it[12..16], &it[16..20], &it[20..]].join("-"))
    }
}

/// Without id and type: they come from the sender and stay out of logs.
impl fmt::Debug for InboxEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxEvent").field("day", &self.day).finish_non_exhaustive()
    }
}

fn check(what: &str, text: &str, at_most: usize) -> Result<()> {
    let length = text.chars().count();
    if (1..=at_most).contains(&length) && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{what}: use 1 to {at_most} characters, none of them a control character"
    )))
}

fn is_day(text: &str) -> bool {
    let part =
        |from, to| text.get(from..to).filter(|it: &&str| it.bytes().all(|b| b.is_ascii_digit()));
    let number = |from, to| part(from, to).and_then(|it| it.parse::<u32>().ok());
    let dashes = text.as_bytes().get(4) == Some(&b'-') && text.as_bytes().get(7) == Some(&b'-');
    let (Some(year), Some(month), Some(day)) = (number(0, 4), number(5, 7), number(8, 10)) else {
        return false;
    };
    dashes && year >= 1 && (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day)
}

const fn days_of(year: u32, month: u32) -> u32 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_date_that_exists() {
        let event = || InboxEvent::new("a", "b").unwrap();
        for good in ["2026-03-01", "2024-02-29", "2026-12-31T23:59:59+02:00", "0001-01-01"] {
            assert_eq!(event().occurred_on(good).unwrap().day(), Some(&good[..10]));
        }
        for bad in
            ["", "2026-3-01", "2026-02-29", "2026-13-01", "2026-00-10", "01.02.2026", "2026-01-0é"]
        {
            assert!(event().occurred_on(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_spelling_of_a_uuid_is_one_id() {
        let uuid = |id: &str| InboxEvent::new(id, "t").unwrap().uuid();
        let one = "6f2c0b1e-7d0a-4a5e-9f3a-0c1d2e3f4a5b";
        assert_eq!(uuid(one).unwrap(), one);
        assert_eq!(uuid(&one.to_uppercase()).unwrap(), one);
        assert_eq!(uuid(&one.replace('-', "")).unwrap(), one);
        for bad in [
            "order-42",
            "6f2c0b1e7d0a4a5e9f3a0c1d2e3f4a5",
            "{6f2c0b1e-7d0a-4a5e-9f3a-0c1d2e3f4a5b}",
        ] {
            assert!(uuid(bad).unwrap_err().to_string().contains("Full"), "{bad}");
        }
    }

    #[test]
    fn an_id_or_type_that_the_server_would_refuse_is_refused() {
        for (id, kind) in [("", "t"), ("a\0b", "t"), ("a", ""), ("a\n", "t")] {
            assert!(InboxEvent::new(id, kind).is_err());
        }
        assert!(InboxEvent::new("a".repeat(256), "t").is_err());
        assert!(InboxEvent::new("a", "t".repeat(101)).is_err());
        assert!(InboxEvent::new("ä".repeat(255), "ä".repeat(100)).is_ok());
    }
}
