//! Builds a failover, which needs explicit permission that work may run twice.

use super::{FailbackWindow, Failover};
use crate::{Error, HashSecret, Result, Store};

/// Builds a [`Failover`].
#[derive(Debug)]
#[must_use]
pub struct FailoverBuilder<P, S> {
    primary: P,
    secondary: S,
    allowed: bool,
}

impl<P: Store, S: Store + FailbackWindow> FailoverBuilder<P, S> {
    pub(super) const fn new(primary: P, secondary: S) -> Self {
        Self { primary, secondary, allowed: false }
    }

    /// Permits that work runs twice when the primary fails. Without it there is no failover.
    pub fn allow_duplicate_execution_on_failover(mut self, allow: bool) -> Self {
        self.allowed = allow;
        self
    }

    /// Makes the store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when duplicates are not allowed, or the two stores
    /// hash keys with different secrets.
    pub fn build(self) -> Result<Failover<P, S>> {
        if !self.allowed {
            return Err(Error::invalid(NOT_ALLOWED));
        }
        let secrets = [self.primary.info(), self.secondary.info()].map(|info| info.hash_secret);
        let [one, other] = secrets.map(|secret| HashSecret::check_value(secret.as_ref()));
        if one != other {
            return Err(Error::invalid(
                "failover: the two stores hash keys with different secrets; give both the same",
            ));
        }
        Ok(Failover::open(self.primary, self.secondary))
    }
}

const NOT_ALLOWED: &str = "failover: while the primary is unreachable it is not known what ran there, so work may run \
     twice; where that is acceptable, say so with allow_duplicate_execution_on_failover, else let the secondary \
     decide and put the primary in front of it (Arbiter, --front)";
