//! All cases on one door.

use std::{fmt, panic::AssertUnwindSafe};

use futures_util::FutureExt;

use super::{ALL, Ability, HttpCase, HttpTarget};

/// What a door showed.
#[derive(Debug, Default)]
#[must_use = "a broken promise is only written down here"]
pub struct HttpReport {
    /// Cases the door passed.
    pub kept: Vec<HttpCase>,
    /// Cases the door failed; what was wrong is on standard error.
    pub broken: Vec<HttpCase>,
    /// Cases the door has no means to show.
    pub not_shown: Vec<(HttpCase, Ability)>,
}

/// Puts a door through every case, one after the other, and prints what it could not show.
pub async fn http(target: &dyn HttpTarget) -> HttpReport {
    let mut report = HttpReport::default();
    for case in ALL {
        if let Some(ability) = case.lacks(target) {
            report.not_shown.push((*case, ability));
            continue;
        }
        match AssertUnwindSafe(case.check(target)).catch_unwind().await {
            Ok(()) => report.kept.push(*case),
            Err(_) => report.broken.push(*case),
        }
    }
    println!("{report}");
    report
}

impl fmt::Display for HttpReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kept, broken, not_shown } = self;
        writeln!(f, "{} kept, {} broken, {} not shown", kept.len(), broken.len(), not_shown.len())?;
        for case in broken {
            writeln!(f, "broken: {}: {}", case.name(), case.says())?;
        }
        for (case, ability) in not_shown {
            writeln!(f, "not shown: {}: the door has no means for {ability}", case.name())?;
        }
        Ok(())
    }
}
