//! Replacements of the real primitives on shuttle, with the part of their interface that semel uses.
//!
//! Each operation that other tasks can observe is a scheduling point, where shuttle alone decides which task continues.

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
    explore::{TimeAdvances, assert_bug_found, explore},
    lock::{Condvar, Mutex},
    notify::Notify,
    runtime::TaskTracker,
    time::Instant,
};

/// A random number that a replay of the schedule repeats.
pub fn random_range(range: Range<f64>) -> f64 {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(range)
}
