//! A store clock that does not go backwards over a restart.

use std::sync::Arc;

use semel_core::{Clock, Span, Timestamp};

/// A clock that is moved ahead if it is behind the latest time in the folder.
#[derive(Clone, Debug)]
pub(crate) struct MonotonicClock {
    clock: Arc<dyn Clock>,
    ahead: Span,
}

impl MonotonicClock {
    pub(crate) fn not_before(clock: Arc<dyn Clock>, seen: Timestamp) -> Self {
        let ahead = Span::from(seen.since(clock.now()));
        Self { clock, ahead }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now().after(self.ahead)
    }
}
