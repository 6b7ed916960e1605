//! `tokio::time` and `std::time::Instant` on a virtual clock.
//!
//! Time stands still while code runs. A separate task advances it to the next timer; when that task may run depends on
//! [`TimeAdvances`](super::TimeAdvances).

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::{Future, poll_fn},
    ops::{Add, Sub},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::Timestamp;

thread_local! {
    /// All tasks of a schedule are on one thread.
    static TIME: RefCell<VirtualTime> = const { RefCell::new(VirtualTime::START) };
}

struct VirtualTime {
    now: Duration,
    timers: BTreeMap<(Instant, u64), Waker>,
    last_timer: u64,
    /// The task that advances time, while there is no timer or time stands still.
    idle: Option<Waker>,
    stands_still: bool,
}

impl VirtualTime {
    /// Not zero, since code subtracts from instants.
    const START: Self = Self {
        now: Duration::from_secs(1_000_000),
        timers: BTreeMap::new(),
        last_timer: 0,
        idle: None,
        stands_still: false,
    };
}

/// Resets the clock after the previous schedule.
pub(super) fn begin() {
    TIME.replace(VirtualTime::START);
}

/// Advances time from timer to timer, for ever.
pub(super) async fn pass() {
    loop {
        poll_fn(|cx| {
            TIME.with_borrow_mut(|time| {
                if time.stands_still || time.timers.is_empty() {
                    time.idle = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
        })
        .await;
        shuttle::future::yield_now().await;
        TIME.with_borrow_mut(VirtualTime::advance).into_iter().for_each(Waker::wake);
    }
}

impl VirtualTime {
    /// Advances to the first timer, and returns the wakers of all timers that are due.
    fn advance(&mut self) -> Vec<Waker> {
        if self.stands_still {
            return Vec::new();
        }
        let Some((&(first, _), _)) = self.timers.first_key_value() else { return Vec::new() };
        self.now = self.now.max(first.0);
        let later = self.timers.split_off(&(Instant(self.now), u64::MAX));
        std::mem::replace(&mut self.timers, later).into_values().collect()
    }
}

/// VirtualTime does not advance until this is dropped.
#[derive(Debug)]
pub struct StandStill(());

pub fn stand_still() -> StandStill {
    TIME.with_borrow_mut(|time| time.stands_still = true);
    StandStill(())
}

impl Drop for StandStill {
    fn drop(&mut self) {
        let idle = TIME.with_borrow_mut(|time| {
            time.stands_still = false;
            time.idle.take()
        });
        idle.into_iter().for_each(Waker::wake);
    }
}

/// The number of timers that a task waits for.
pub fn timers() -> usize {
    TIME.with_borrow(|time| time.timers.len())
}

/// The virtual clock, for a store.
#[derive(Debug)]
pub struct VirtualStoreClock;

impl crate::Clock for VirtualStoreClock {
    fn now(&self) -> Timestamp {
        let millis = Instant::now().0.as_millis();
        Timestamp::from_millis(u64::try_from(millis).expect("virtual time is short"))
    }
}

/// Public because it is in the signature of a public method, in builds for schedule tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Self {
        Self(TIME.with_borrow(|time| time.now))
    }

    /// On the virtual clock, tokio's and std's instants are the same type.
    pub const fn from_std(instant: Self) -> Self {
        instant
    }

    pub fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    pub const fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0 - duration)
    }
}

/// A future that is ready at its deadline.
#[derive(Debug)]
pub struct Sleep {
    deadline: Instant,
    timer: Option<u64>,
}

pub const fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, timer: None }
}

pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(Instant::now() + duration)
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.deadline {
            return Poll::Ready(());
        }
        let idle = TIME.with_borrow_mut(|time| {
            let timer = *self.timer.get_or_insert_with(|| {
                time.last_timer += 1;
                time.last_timer
            });
            time.timers.insert((self.deadline, timer), cx.waker().clone());
            time.idle.take()
        });
        idle.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            TIME.with_borrow_mut(|time| time.timers.remove(&(self.deadline, timer)));
        }
    }
}

/// The deadline of a timeout has passed.
#[derive(Debug)]
pub struct Elapsed;

pub fn timeout<F: Future>(
    duration: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    timeout_at(Instant::now() + duration, future)
}

pub async fn timeout_at<F: Future>(deadline: Instant, future: F) -> Result<F::Output, Elapsed> {
    let (mut future, mut sleep) = (pin!(future), pin!(sleep_until(deadline)));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => sleep.as_mut().poll(cx).map(|()| Err(Elapsed)),
    })
    .await
}
