//! Store time that does not run backwards over a restart.

use std::sync::Arc;

use semel_core::{Clock, Span, Timestamp};

/// A clock moved ahead by as much as it was behind what the folder had seen at opening.
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
