//! Decides when the next request is sent.

use std::{
    cell::Cell,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use anyhow::Result;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver};

/// When a connection sends its next request.
pub(super) enum SendPace<'a> {
    /// When the last request is answered.
    AtOnce { until: Instant },
    /// By a schedule that all connections share: a free connection takes the next request.
    By { schedule: &'a SendSchedule, timer: Timer },
}

impl<'a> SendPace<'a> {
    pub(super) fn by(schedule: &'a SendSchedule) -> Result<Self> {
        Ok(Self::By { schedule, timer: Timer::new()? })
    }

    /// Waits until the next request is due, and returns that time. `None` when the run is over.
    pub(super) async fn turn(&mut self) -> Result<Option<Instant>> {
        match self {
            Self::AtOnce { until } => {
                let now = Instant::now();
                Ok((now < *until).then_some(now))
            }
            Self::By { schedule, timer } => {
                let Some(due) = schedule.next() else { return Ok(None) };
                timer.wait_until(due).await?;
                Ok(Some(due))
            }
        }
    }
}

/// Requests at equal intervals.
pub(super) struct SendSchedule {
    start: Instant,
    rate: f64,
    time: Duration,
    sent: Cell<u32>,
}

impl SendSchedule {
    pub(super) fn new(rate: f64, time: Duration) -> Self {
        Self { start: Instant::now(), rate, time, sent: Cell::new(0) }
    }

    fn next(&self) -> Option<Instant> {
        let number = self.sent.get();
        let after = Duration::from_secs_f64(f64::from(number) / self.rate);
        self.sent.set(number + 1);
        (after < self.time).then(|| self.start + after)
    }
}

/// A timer of the kernel. Timers of the runtime count in whole milliseconds and would send in bursts. The timer is read
/// like a pipe, which becomes readable when the time is up.
pub(super) struct Timer(Receiver);

impl Timer {
    fn new() -> Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
        Ok(Self(Receiver::from_owned_fd_unchecked(timer)?))
    }

    async fn wait_until(&mut self, due: Instant) -> Result<()> {
        let wait = due.saturating_duration_since(Instant::now());
        // Zero would disable the timer.
        if !wait.is_zero() {
            let zero = Timespec::try_from(Duration::ZERO)?;
            let once = Itimerspec { it_interval: zero, it_value: Timespec::try_from(wait)? };
            timerfd_settime(self.0.as_fd(), TimerfdTimerFlags::empty(), &once)?;
            // The number of expirations.
            self.0.read_u64().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_has_as_many_turns_as_its_rate_says() {
        let schedule = SendSchedule::new(1000.0, Duration::from_millis(100));
        let due: Vec<_> = std::iter::from_fn(|| schedule.next()).collect();
        assert_eq!(due.len(), 100);
        assert_eq!(due[70] - due[20], Duration::from_millis(50));
    }

    #[tokio::test]
    async fn a_turn_comes_no_earlier_than_it_is_due() {
        let schedule = SendSchedule::new(2000.0, Duration::from_millis(10));
        let mut pace = SendPace::by(&schedule).unwrap();
        while let Some(due) = pace.turn().await.unwrap() {
            assert!(due <= Instant::now());
        }
    }
}
