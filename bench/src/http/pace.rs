//! When the next request goes out.

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

/// One connection's way to send.
pub(super) enum Pace<'a> {
    /// As soon as the last request is answered.
    AtOnce { until: Instant },
    /// By a schedule that all connections share: whichever is free takes the next request.
    By { schedule: &'a Schedule, timer: Timer },
}

impl<'a> Pace<'a> {
    pub(super) fn by(schedule: &'a Schedule) -> Result<Self> {
        Ok(Self::By { schedule, timer: Timer::new()? })
    }

    /// Waits for its turn, and says when that was due; nothing when time is up.
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

/// Requests at even distances.
pub(super) struct Schedule {
    start: Instant,
    rate: f64,
    time: Duration,
    sent: Cell<u32>,
}

impl Schedule {
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

/// A timer of the kernel: the runtime's own count in whole milliseconds, and so would send in bursts.
/// It is read like a pipe, which gives something once time is up.
pub(super) struct Timer(Receiver);

impl Timer {
    fn new() -> Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
        Ok(Self(Receiver::from_owned_fd_unchecked(timer)?))
    }

    async fn wait_until(&mut self, due: Instant) -> Result<()> {
        let wait = due.saturating_duration_since(Instant::now());
        // Zero would disarm it.
        if !wait.is_zero() {
            let zero = Timespec::try_from(Duration::ZERO)?;
            let once = Itimerspec { it_interval: zero, it_value: Timespec::try_from(wait)? };
            timerfd_settime(self.0.as_fd(), TimerfdTimerFlags::empty(), &once)?;
            // How often it went off.
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
        let schedule = Schedule::new(1000.0, Duration::from_millis(100));
        let due: Vec<_> = std::iter::from_fn(|| schedule.next()).collect();
        assert_eq!(due.len(), 100);
        assert_eq!(due[70] - due[20], Duration::from_millis(50));
    }

    #[tokio::test]
    async fn a_turn_comes_no_earlier_than_it_is_due() {
        let schedule = Schedule::new(2000.0, Duration::from_millis(10));
        let mut pace = Pace::by(&schedule).unwrap();
        while let Some(due) = pace.turn().await.unwrap() {
            assert!(due <= Instant::now());
        }
    }
}
