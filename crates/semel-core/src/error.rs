//! The error type of all crates of semel: a kind for programs, a text for people, and a source.

use std::{error::Error as StdError, fmt, sync::Arc};

/// The result of every fallible call of semel.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error, from the caller's point of view and not the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument breaks a rule; the message names the rule.
    Invalid,
    /// The store did not answer. The step may or may not have happened.
    Unavailable,
    /// The store is at its bound and refused the step. Nothing happened.
    Full,
    /// A record or outcome cannot be read.
    Corrupt,
    /// A record was written by a newer semel.
    Unsupported,
    /// The engine is shutting down and takes no new work.
    Closed,
}

impl ErrorKind {
    /// True when the same call, repeated unchanged, may succeed.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::Unavailable | Self::Full => true,
            Self::Invalid | Self::Corrupt | Self::Unsupported | Self::Closed => false,
        }
    }

    /// True when the step may have happened although no reply came.
    #[must_use]
    pub const fn is_indefinite(self) -> bool {
        match self {
            Self::Unavailable => true,
            Self::Full | Self::Invalid | Self::Corrupt | Self::Unsupported | Self::Closed => false,
        }
    }
}

/// Why a call failed. Cheap to clone, because every waiter of a key gets the same one.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    subject: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind about this subject. The subject must not hold payloads or secrets.
    #[must_use]
    pub fn new(kind: ErrorKind, subject: impl Into<String>) -> Self {
        Self { kind, subject: Arc::from(subject.into()), source: None }
    }

    /// Shorthand for the most common kind: an argument breaks a rule.
    #[must_use]
    pub fn invalid(subject: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, subject)
    }

    /// Adds the cause, as the error's source.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What the caller can act on.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
