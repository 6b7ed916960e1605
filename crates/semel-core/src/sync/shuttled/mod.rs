//! Stand-ins for the real primitives, with the part of their interface that this crate uses.
//!
//! Each operation that others can see has a scheduling point, and only shuttle decides who goes on.

mod explore;
mod lock;
mod notify;
pub(crate) mod runtime;
pub(crate) mod time;
pub(crate) mod watch;
pub(crate) mod zoo;

use std::ops::Range;

pub(crate) use shuttle::{future::yield_now, sync::atomic};

pub(crate) use self::{
    explore::{Pace, caught, explore},
    lock::{Condvar, Mutex},
    notify::Notify,
    runtime::TaskTracker,
    time::Instant,
};

/// A number that a replay chooses again.
pub(crate) fn random_range(range: Range<f64>) -> f64 {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(range)
}
