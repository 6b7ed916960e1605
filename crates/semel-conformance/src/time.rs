//! How time passes for the store under test.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::ManualClock;

/// The lease of claims whose owner gets lost. A store call may take a sixth of it.
pub const LEASE: Duration = Duration::from_millis(300);

/// The retention of records that expire in a test.
pub const RETENTION: Duration = Duration::from_millis(700);

/// Lets time pass for the store under test.
#[async_trait]
pub trait Time: Send + Sync {
    /// Returns once at least `span` of store time has passed.
    async fn pass(&self, span: Duration);
}

/// Time that passes by itself.
#[derive(Clone, Copy, Debug)]
pub struct RealTime {
    margin: Duration,
}

impl RealTime {
    /// The default margin that is added to every wait.
    pub const MARGIN: Duration = Duration::from_millis(50);

    /// Waits `margin` longer than each span: the time that the store needs to notice the end of a lease.
    #[must_use]
    pub const fn with_margin(margin: Duration) -> Self {
        Self { margin }
    }
}

impl Default for RealTime {
    fn default() -> Self {
        Self::with_margin(Self::MARGIN)
    }
}

#[async_trait]
impl Time for RealTime {
    async fn pass(&self, span: Duration) {
        if !span.is_zero() {
            tokio::time::sleep(span + self.margin).await;
        }
    }
}

#[async_trait]
impl Time for ManualClock {
    async fn pass(&self, span: Duration) {
        self.advance(span);
    }
}
