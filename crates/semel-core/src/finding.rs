//! The findings of a check of a store, such as `semel doctor` makes.

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it is good.
    pub level: Level,
    /// What was checked, and the result. Never contains payloads or secrets.
    pub what: String,
    /// What to do about it.
    pub fix: Option<String>,
}

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Good,
    /// It works, but a part of the promise does not hold.
    Warning,
    /// The promise does not hold.
    Bad,
}

impl Finding {
    /// A finding that is as it should be.
    #[must_use]
    pub fn good(what: impl Into<String>) -> Self {
        Self { level: Level::Good, what: what.into(), fix: None }
    }

    /// A finding that works, but for which a part of the promise does not hold.
    #[must_use]
    pub fn warning(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Warning, what: what.into(), fix: Some(fix.into()) }
    }

    /// A finding that breaks the promise.
    #[must_use]
    pub fn bad(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Bad, what: what.into(), fix: Some(fix.into()) }
    }
}
