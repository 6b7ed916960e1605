//! Pauses that grow.

use std::time::Duration;

/// Pauses between attempts: each is twice as long as the one before, up to a limit, with jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first attempt.
    pub first: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl Backoff {
    /// Between attempts at a message: from one second to five minutes.
    pub const MESSAGES: Self =
        Self { first: Duration::from_secs(1), max: Duration::from_secs(300) };
    /// Between short repetitions of a call to a server.
    pub(crate) const SHORT: Self =
        Self { first: Duration::from_millis(100), max: Duration::from_secs(2) };

    /// The pause after attempt number `attempt`, without jitter.
    #[must_use]
    pub fn after(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.max)
    }

    /// The pause after attempt number `attempt`: half of it fixed, half of it random, so that messages that failed
    /// together do not come back together.
    #[must_use]
    pub fn delay(&self, attempt: u32) -> Duration {
        self.after(attempt).mul_f64(rand::random_range(0.5..=1.0))
    }

    /// The next of a series of pauses.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = self.delay(1);
        self.first = self.after(2);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit() {
        let pauses: Vec<_> = (1..=4).map(|it| Backoff::MESSAGES.after(it).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8]);
        assert_eq!(Backoff::MESSAGES.after(u32::MAX).as_secs(), 300);
        for _ in 0..100 {
            let delay = Backoff::MESSAGES.delay(3);
            assert!(
                (Duration::from_secs(2)..=Duration::from_secs(4)).contains(&delay),
                "{delay:?}"
            );
        }
    }
}
