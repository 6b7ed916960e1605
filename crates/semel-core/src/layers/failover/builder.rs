//! Builds the failover layer. Its user has to accept explicitly that work may run twice.

use super::{FailbackWindow, Failover};
use crate::{Error, HashSecret, Result, Store};

/// Builds a [`Failover`].
#[derive(Debug)]
#[must_use]
pub struct FailoverBuilder<P, S> {
    primary: P,
    secondary: S,
    duplicates_allowed: bool,
}

impl<P: Store, S: Store + FailbackWindow> FailoverBuilder<P, S> {
    pub(super) const fn new(primary: P, secondary: S) -> Self {
        Self { primary, secondary, duplicates_allowed: false }
    }

    /// Accepts that work may run twice when the primary fails. Without it, [`FailoverBuilder::build`] fails.
    pub fn allow_duplicate_execution_on_failover(mut self, allow: bool) -> Self {
        self.duplicates_allowed = allow;
        self
    }

    /// Makes the failover layer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when duplicates are not allowed, or the two stores
    /// hash keys with different secrets.
    pub fn build(self) -> Result<Failover<P, S>> {
        if !self.duplicates_allowed {
            return Err(Error::invalid(NOT_ALLOWED));
        }
        let secrets = [self.primary.info(), self.secondary.info()].map(|info| info.hash_secret);
        let [primary, secondary] = secrets.map(|secret| HashSecret::check_value(secret.as_ref()));
        if primary != secondary {
            return Err(Error::invalid(
                "failover: the two stores hash keys with different secrets; set the same hash secret for both",
            ));
        }
        Ok(Failover::open(self.primary, self.secondary))
    }
}

const NOT_ALLOWED: &str = "failover: while the primary is unreachable it is not known what ran there, so work may run \
     twice; if that is acceptable, set allow_duplicate_execution_on_failover; if not, use an Arbiter with the \
     secondary as its authority and the primary as its front (--front)";
