//! Checks all cases against one target, and reports the results.

use std::{fmt, panic::AssertUnwindSafe};

use futures_util::FutureExt;

use super::{ALL, Ability, HttpCase, HttpTarget};

/// The results of all cases.
#[derive(Debug, Default)]
#[must_use = "a broken promise is only written down here"]
pub struct HttpReport {
    /// Cases that the target passed.
    pub kept: Vec<HttpCase>,
    /// Cases that the target failed. The reasons are on standard error.
    pub broken: Vec<HttpCase>,
    /// Cases that need an ability the target does not have.
    pub not_shown: Vec<(HttpCase, Ability)>,
}

/// Checks a target against every case, one after the other, and prints the report.
pub async fn http(target: &dyn HttpTarget) -> HttpReport {
    let mut report = HttpReport::default();
    for case in ALL {
        if let Some(ability) = case.missing_ability(target) {
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
            writeln!(f, "not shown: {}: the target does not support {ability}", case.name())?;
        }
        Ok(())
    }
}
