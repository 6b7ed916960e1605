//! What an inspection of a store found.

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it stands.
    pub level: Level,
    /// What was looked at and what is there. Never holds payloads or secrets.
    pub what: String,
    /// What to do about it.
    pub fix: Option<String>,
}

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Good,
    /// It works, but not for everything that is promised.
    Warning,
    /// The promise does not hold.
    Bad,
}

impl Finding {
    /// Something as it should be.
    #[must_use]
    pub fn good(what: impl Into<String>) -> Self {
        Self { level: Level::Good, what: what.into(), fix: None }
    }

    /// Something that works, but not for everything that is promised.
    #[must_use]
    pub fn warning(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Warning, what: what.into(), fix: Some(fix.into()) }
    }

    /// Something that breaks the promise.
    #[must_use]
    pub fn bad(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Bad, what: what.into(), fix: Some(fix.into()) }
    }
}
