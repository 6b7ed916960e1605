//! How long outcomes are kept, compared with the time in which the source may deliver a message again.

use std::time::Duration;

use semel_core::{Error, Finding, Policy, Result};

/// How long the outcome of an event is kept. A copy that comes later runs again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// A day, or a tenth more than the time in which the source may deliver a message again, if that is longer.
    #[default]
    Auto,
    /// Exactly this long. Refused if the source may deliver a message again after it.
    Fixed(Duration),
}

impl Retention {
    /// The shortest automatic retention.
    pub const AT_LEAST: Duration = Duration::from_secs(24 * 3600);
    /// A retention that is longer than the source's window by this factor is warned about.
    const EXCESS: u32 = 20;

    /// The retention for a source that may deliver a message again for as long as `window`, and what is to be said about
    /// it. `None` is a source without a limit.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when the retention is shorter than the window and
    /// `allows_short` is false.
    pub fn resolve(
        self,
        window: Option<Duration>,
        allows_short: bool,
    ) -> Result<(Duration, Finding)> {
        let needed = window.map(|window| window.saturating_add(window / 10));
        let retention = match self {
            Self::Auto => needed.unwrap_or_default().clamp(Self::AT_LEAST, Policy::MAX_RETENTION),
            Self::Fixed(retention) => retention,
        };
        let shown = format!("retention: outcomes are kept for {retention:?}");
        let finding = match window {
            None => Finding::warning(
                format!("{shown}, and the source keeps messages without limit"),
                "a message that is delivered again later runs again: limit the age of messages in the source, or do \
                 not replay older ones",
            ),
            Some(window) if retention < window && !allows_short => {
                return Err(Error::invalid(format!(
                    "consumer: the retention is {retention:?}, and the source may deliver a message again for \
                     {window:?}: a late copy would run again; use Retention::Auto or a longer one, or allow a short \
                     retention"
                )));
            }
            Some(window) if retention < window => Finding::warning(
                format!("{shown}, and the source may deliver a message again for {window:?}"),
                "a copy that comes later runs again",
            ),
            Some(window)
                if retention > Self::AT_LEAST
                    && retention > window.saturating_mul(Self::EXCESS) =>
            {
                Finding::warning(
                    format!(
                        "{shown}, and the source may deliver a message again for {window:?} only"
                    ),
                    "a shorter retention keeps the store small",
                )
            }
            Some(window) => Finding::good(format!(
                "{shown}, and the source may deliver a message again for {window:?}"
            )),
        };
        Ok((retention, finding))
    }
}

#[cfg(test)]
mod tests {
    use semel_core::Level;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn resolve(retention: Retention, window: Option<Duration>) -> Result<(Duration, Level)> {
        let (retention, finding) = retention.resolve(window, false)?;
        Ok((retention, finding.level))
    }

    #[test]
    fn automatic_retention_covers_the_window_of_the_source() {
        assert_eq!(resolve(Retention::Auto, Some(HOUR)).unwrap(), (24 * HOUR, Level::Good));
        assert_eq!(resolve(Retention::Auto, Some(100 * HOUR)).unwrap(), (110 * HOUR, Level::Good));
        assert_eq!(resolve(Retention::Auto, None).unwrap(), (24 * HOUR, Level::Warning));
    }

    #[test]
    fn a_retention_that_ends_before_the_window_is_refused_unless_it_is_allowed() {
        let error = resolve(Retention::Fixed(HOUR), Some(2 * HOUR)).unwrap_err().to_string();
        assert!(error.contains("allow a short retention"), "{error}");
        let allowed = Retention::Fixed(HOUR).resolve(Some(2 * HOUR), true).unwrap();
        assert_eq!((allowed.0, allowed.1.level), (HOUR, Level::Warning));
    }

    #[test]
    fn a_retention_that_is_far_too_long_is_warned_about() {
        assert_eq!(resolve(Retention::Fixed(500 * HOUR), Some(HOUR)).unwrap().1, Level::Warning);
    }
}
