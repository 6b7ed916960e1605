//! Stand-ins for the real primitives, with the part of their interface that this crate uses.
//!
//! Each operation that others can see has a scheduling point, and only shuttle decides who goes on.

mod explore;
mod lock;
mod notify;
pub mod planted_bugs;
pub mod runtime;
pub mod time;
pub mod watch;

use std::ops::Range;

pub use shuttle::{future::yield_now, sync::atomic};

pub use self::{
    explore::{Pace, caught, explore},
    lock::{Condvar, Mutex},
    notify::Notify,
    runtime::TaskTracker,
    time::Instant,
};

/// A number that a replay chooses again.
pub fn random_range(range: Range<f64>) -> f64 {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(range)
}
