//! Where a value came from.

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

use clap::{ArgMatches, Command, parser::ValueSource};

/// Where a value was set. The order of the variants keeps the problems of a file together and in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SettingOrigin {
    /// A place in semel.toml.
    File { path: Arc<Path>, line: usize, column: usize },
    /// A variable.
    Variable(String),
    /// A flag.
    Flag(String),
    /// Nowhere: the value is the default.
    #[default]
    Default,
}

impl SettingOrigin {
    /// The place of the byte at `at` in `text`.
    pub(super) fn in_file(path: &Arc<Path>, text: &str, at: usize) -> Self {
        let before = &text.as_bytes()[..at.min(text.len())];
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
        Self::File { path: path.clone(), line, column }
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Self::Variable(name) | Self::Flag(name) => f.write_str(name),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The origins of all values, by their path in semel.toml.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingOrigins(BTreeMap<String, SettingOrigin>);

impl SettingOrigins {
    pub(super) fn insert(&mut self, path: String, origin: SettingOrigin) {
        self.0.insert(path, origin);
    }

    pub(super) fn of(&self, path: &str) -> SettingOrigin {
        self.0.get(path).cloned().unwrap_or_default()
    }

    /// All paths that are set, with their origins.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &SettingOrigin)> {
        self.0.iter().map(|(path, origin)| (path.as_str(), origin))
    }

    /// The origin of the first of `paths` that is set.
    pub(super) fn first(&self, paths: &[String]) -> SettingOrigin {
        paths.iter().find_map(|path| self.0.get(path).cloned()).unwrap_or_default()
    }

    /// Replaces the origins of values that variables and flags override.
    pub(super) fn overlay(&mut self, command: &Command, matches: &ArgMatches) {
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let origin = match matches.value_source(id) {
                Some(ValueSource::CommandLine) => {
                    SettingOrigin::Flag(format!("--{}", argument.get_long().unwrap_or(id)))
                }
                Some(ValueSource::EnvVariable) => {
                    let name = argument.get_env().unwrap_or_default();
                    SettingOrigin::Variable(name.to_string_lossy().into_owned())
                }
                _ => continue,
            };
            self.insert(id.to_owned(), origin);
        }
    }
}
