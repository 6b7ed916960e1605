//! The problems of the settings, and their places.

use std::fmt;

use super::origin::SettingOrigin;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingProblem {
    at: SettingOrigin,
    what: String,
}

impl SettingProblem {
    pub(super) fn new(at: SettingOrigin, what: impl Into<String>) -> Self {
        Self { at, what: what.into() }
    }
}

impl fmt::Display for SettingProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            SettingOrigin::Default => f.write_str(&self.what),
            at @ (SettingOrigin::File { .. }
            | SettingOrigin::Variable(_)
            | SettingOrigin::Flag(_)) => {
                write!(f, "{at}: {}", self.what)
            }
        }
    }
}

/// All problems, in the order of the file.
#[derive(Debug)]
pub struct BadSettings(pub(super) Vec<SettingProblem>);

impl BadSettings {
    /// The problems, or `value` when there are none.
    pub(super) fn unless_empty<T>(mut problems: Vec<SettingProblem>, value: T) -> Result<T, Self> {
        if problems.is_empty() {
            return Ok(value);
        }
        problems.sort_by(|one, other| one.at.cmp(&other.at));
        problems.dedup();
        Err(Self(problems))
    }
}

impl fmt::Display for BadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let before = if at == 0 { "" } else { "\n" };
            write!(f, "{before}error: {problem}")?;
        }
        Ok(())
    }
}
