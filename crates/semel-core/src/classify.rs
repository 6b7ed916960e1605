//! Classifies the errors of the work: whether a failure is final, or the work may be repeated.

use std::{error::Error as StdError, fmt, io};

/// The kind of failure, and with it the `class` label of `idempotency_failures_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The request itself is wrong. Final.
    Validation,
    /// A business rule forbids it. Final.
    BusinessRule,
    /// The caller may not do this. Final.
    Unauthorised,
    /// The object of the request does not exist. Final.
    NotFound,
    /// No answer in time. Retried.
    Timeout,
    /// A temporary condition. Retried.
    Transient,
    /// The network failed. Retried.
    Network,
    /// No other class fits. Retried.
    Unknown,
    /// The work panicked. Its effect is not known.
    Panic,
}

impl ErrorClass {
    /// The word used in metrics and recorded failures.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::BusinessRule => "business_rule",
            Self::Unauthorised => "unauthorised",
            Self::NotFound => "not_found",
            Self::Timeout => "timeout",
            Self::Transient => "transient",
            Self::Network => "network",
            Self::Unknown => "unknown",
            Self::Panic => "panic",
        }
    }

    /// How an attempt with this class of error ends by default.
    #[must_use]
    pub const fn ending(self) -> Ending {
        match self {
            Self::Validation | Self::BusinessRule | Self::Unauthorised | Self::NotFound => {
                Ending::Final
            }
            Self::Timeout | Self::Transient | Self::Network | Self::Unknown => Ending::Retry,
            Self::Panic => Ending::Indeterminate,
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How an attempt that failed ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The failure is the outcome.
    Final,
    /// The work had no effect: the key is released, and its fingerprint is removed.
    NoEffect,
    /// The work may have had an effect: the key is released for another attempt.
    Retry,
    /// It is not known whether the work took effect: the key is abandoned.
    Indeterminate,
}

/// Sorts errors into classes. Replace it with [`EngineBuilder::classifier`].
///
/// [`EngineBuilder::classifier`]: crate::EngineBuilder::classifier
pub trait Classifier: Send + Sync + 'static {
    /// The class of `error`; look at concrete types with `downcast_ref`.
    fn classify(&self, error: &(dyn StdError + 'static)) -> ErrorClass;
}

impl<F: Fn(&(dyn StdError + 'static)) -> ErrorClass + Send + Sync + 'static> Classifier for F {
    fn classify(&self, error: &(dyn StdError + 'static)) -> ErrorClass {
        self(error)
    }
}

/// Recognises errors of the standard library and of tokio, also as the source of another error.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultClassifier;

impl Classifier for DefaultClassifier {
    fn classify(&self, error: &(dyn StdError + 'static)) -> ErrorClass {
        std::iter::successors(Some(error), |&error| error.source())
            .find_map(known_class)
            .unwrap_or(ErrorClass::Unknown)
    }
}

fn known_class(error: &(dyn StdError + 'static)) -> Option<ErrorClass> {
    if error.is::<tokio::time::error::Elapsed>() {
        return Some(ErrorClass::Timeout);
    }
    error.downcast_ref::<io::Error>().map(|error| class_of_io(error.kind()))
}

fn class_of_io(kind: io::ErrorKind) -> ErrorClass {
    use io::ErrorKind as K;
    match kind {
        K::TimedOut => ErrorClass::Timeout,
        K::Interrupted | K::WouldBlock | K::ResourceBusy => ErrorClass::Transient,
        K::ConnectionRefused
        | K::ConnectionReset
        | K::ConnectionAborted
        | K::NotConnected
        | K::BrokenPipe
        | K::HostUnreachable
        | K::NetworkUnreachable
        | K::NetworkDown
        | K::UnexpectedEof => ErrorClass::Network,
        // A missing file says nothing about the request: other kinds stay unknown, and are retried.
        _ => ErrorClass::Unknown,
    }
}

/// What work returns when it fails. Any type that implements [`std::error::Error`] becomes one through
/// `?` and is then classified; a boxed error goes through a constructor. The constructors set how the attempt
/// ends.
///
/// ```
/// use semel_core::WorkError;
/// fn check(amount: i64) -> Result<(), WorkError> {
///     if amount <= 0 {
///         return Err(WorkError::failure("bad_amount", "the amount must be positive"));
///     }
///     std::str::from_utf8(b"any error")?;
///     Ok(())
/// }
/// # check(1).unwrap();
/// ```
pub struct WorkError {
    pub(crate) ending: Option<Ending>,
    pub(crate) class: Option<ErrorClass>,
    pub(crate) kind: Option<String>,
    pub(crate) error: Box<dyn StdError + Send + Sync>,
}

impl WorkError {
    /// A final failure with a stable word for programs and a sentence for people. Recorded.
    pub fn failure(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: Some(kind.into()), ..Self::ended(Ending::Final, message.into()) }
            .class(ErrorClass::BusinessRule)
    }

    /// Attests that the work had no effect. The key is released, and another payload may use it.
    pub fn no_effect(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::ended(Ending::NoEffect, error)
    }

    /// The work may have had an effect, and may be repeated.
    pub fn retry(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::ended(Ending::Retry, error)
    }

    /// It is not known whether the work took effect.
    pub fn indeterminate(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::ended(Ending::Indeterminate, error)
    }

    /// Sets the class, for metrics and for the recorded failure's kind.
    #[must_use]
    pub fn class(mut self, class: ErrorClass) -> Self {
        self.class = Some(class);
        self
    }

    /// The error itself.
    #[must_use]
    pub fn error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.error
    }

    fn ended(ending: Ending, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { ending: Some(ending), class: None, kind: None, error: error.into() }
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for WorkError {
    fn from(error: E) -> Self {
        Self { ending: None, class: None, kind: None, error: Box::new(error) }
    }
}

impl fmt::Debug for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The error's text may quote a payload.
        f.debug_struct("WorkError")
            .field("ending", &self.ending)
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wrapped(io::Error);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("wrapped")
        }
    }

    impl StdError for Wrapped {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_cause_deep_inside_is_recognised() {
        let classify = |kind| DefaultClassifier.classify(&Wrapped(io::Error::from(kind)));
        assert_eq!(classify(io::ErrorKind::TimedOut), ErrorClass::Timeout);
        assert_eq!(classify(io::ErrorKind::ConnectionReset), ErrorClass::Network);
        assert_eq!(classify(io::ErrorKind::Interrupted), ErrorClass::Transient);
        assert_eq!(classify(io::ErrorKind::Other), ErrorClass::Unknown);
    }

    #[test]
    fn classes_end_as_published() {
        use ErrorClass as C;
        for class in [C::Validation, C::BusinessRule, C::Unauthorised, C::NotFound] {
            assert_eq!(class.ending(), Ending::Final, "{class}");
        }
        for class in [C::Timeout, C::Transient, C::Network, C::Unknown] {
            assert_eq!(class.ending(), Ending::Retry, "{class}");
        }
        assert_eq!(C::Panic.ending(), Ending::Indeterminate);
    }
}
