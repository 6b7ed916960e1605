//! What the concurrent parts of this crate are built on: locks, channels, time, tasks, chance.
//!
//! These are parking_lot, std, tokio and rand under their own names. In schedule tests, and nowhere else,
//! they are [shuttle](https://docs.rs/shuttle)'s primitives and a virtual clock: the same code runs
//! under thousands of schedules that can be repeated. See docs/adr/0010-schedules.md.

#[cfg(not(all(test, shuttle)))]
mod real {
    pub(crate) use std::{sync::atomic, time::Instant};

    pub(crate) use parking_lot::{Condvar, Mutex};
    pub(crate) use rand::random_range;
    pub(crate) use tokio::{
        runtime,
        sync::{Notify, watch},
        task::yield_now,
        time,
    };
    pub(crate) use tokio_util::task::TaskTracker;
}

#[cfg(all(test, shuttle))]
mod shuttled;

#[cfg(not(all(test, shuttle)))]
pub(crate) use real::*;
#[cfg(all(test, shuttle))]
pub(crate) use shuttled::*;

/// Where a bug of the zoo lives: a schedule test that lets it loose runs the block, to prove that such
/// a bug is caught. Everywhere else this is nothing.
macro_rules! bug {
    ($name:ident => $block:block) => {
        #[cfg(all(test, shuttle))]
        {
            if $crate::sync::zoo::is_loose($crate::sync::zoo::Bug::$name) $block
        }
    };
}
pub(crate) use bug;
