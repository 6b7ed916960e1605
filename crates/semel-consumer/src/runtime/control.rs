//! What an operator can do with a running consumer, and what it reports at its end.

use std::{fmt, sync::Arc};

use super::Runtime;
use crate::pipeline::BreakerPosition;

/// Pauses, resumes and stops a running consumer. Clones control the same consumer.
#[derive(Clone)]
pub struct ConsumerControl(pub(crate) Arc<Runtime>);

impl ConsumerControl {
    /// Receives no more messages until [`resume`](Self::resume). Messages that were received are processed.
    pub fn pause(&self) {
        if !self.0.paused.send_replace(true) {
            tracing::info!("the consumer is paused");
        }
    }

    /// Receives messages again.
    pub fn resume(&self) {
        if self.0.paused.send_replace(false) {
            tracing::info!("the consumer is resumed");
        }
    }

    /// Begins to shut down, as the shutdown future of [`Consumer::run_until`](crate::Consumer::run_until) does.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    /// True after [`pause`](Self::pause). An open circuit breaker also stops the source, but is not a pause.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        *self.0.paused.borrow()
    }

    /// True once the consumer shuts down.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.0.stopping.borrow()
    }

    /// Deliveries that are received and not settled.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.queue.in_flight()
    }

    /// The position of the circuit breaker.
    #[must_use]
    pub fn breaker(&self) -> BreakerPosition {
        self.0.breaker.position()
    }
}

impl fmt::Debug for ConsumerControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerControl")
            .field("in_flight", &self.in_flight())
            .field("is_paused", &self.is_paused())
            .finish_non_exhaustive()
    }
}

/// How a consumer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerReport {
    /// Messages that were received and not begun: the broker has them back.
    pub returned: usize,
    /// Messages whose handlers did not end within the grace time. They come again.
    pub cut_off: usize,
}
