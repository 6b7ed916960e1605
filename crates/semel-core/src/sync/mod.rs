//! The locks, channels, timers, tasks and random numbers that the concurrent code of semel imports.
//!
//! They are those of parking_lot, std, tokio and rand. In schedule tests (`--cfg shuttle`), and nowhere else, they
//! are [shuttle](https://docs.rs/shuttle)'s primitives and a virtual clock, so that the same code runs under
//! thousands of reproducible schedules. See docs/adr/0010-schedules.md.

#[cfg(not(shuttle))]
mod real {
    pub use std::{sync::atomic, time::Instant};

    pub use parking_lot::{Condvar, Mutex};
    pub use rand::random_range;
    pub use tokio::{
        runtime,
        sync::{Notify, watch},
        task::yield_now,
        time,
    };
    pub use tokio_util::task::TaskTracker;
}

#[cfg(shuttle)]
mod shuttled;

#[cfg(not(shuttle))]
pub use real::*;
#[cfg(shuttle)]
pub use shuttled::*;

/// Marks the place of a planted bug: the block runs only in the schedule test that plants this bug, to prove that
/// the test finds it. In every other build it expands to nothing.
#[doc(hidden)]
#[macro_export]
macro_rules! __planted_bug {
    ($name:ident => $block:block) => {
        #[cfg(shuttle)]
        {
            if $crate::sync::planted_bugs::is_planted($crate::sync::planted_bugs::ScheduleBug::$name) $block
        }
    };
}
pub use crate::__planted_bug as bug;
