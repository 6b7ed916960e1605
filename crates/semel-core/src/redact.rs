//! A wrapper for values that must not appear in a log, span, metric, error or panic.

use std::fmt;

/// Holds a value and formats it as `[redacted]`.
///
/// ```
/// use semel_core::Redacted;
/// let id = Redacted::new("order-42");
/// assert_eq!(format!("{id:?} {id}"), "[redacted] [redacted]");
/// assert_eq!(*id.expose(), "order-42");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    /// Hides `value` from formatting.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value in the clear. The name is long on purpose: each use is a decision.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl<T> fmt::Display for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}
