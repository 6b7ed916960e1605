//! Settings in their meaningful form: the part that JWT, telemetry and the admin listener need.

use std::{fmt, path::PathBuf, time::Duration};

#[derive(Clone, Debug)]
pub(crate) struct JwtSettings {
    pub(crate) file: PathBuf,
    pub(crate) issuers: Vec<String>,
    pub(crate) audiences: Vec<String>,
    pub(crate) leeway: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    pub(crate) level: tracing::Level,
    pub(crate) format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    pub(crate) fn new(token: String) -> Self {
        Self(token)
    }

    pub(crate) fn matches(&self, presented: &str) -> bool {
        let (a, b) = (self.0.as_bytes(), presented.as_bytes());
        a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}
