//! What every event source must promise, and what a consumer on it promises its users. For every broker to come.
//!
//! A [`SourceFixture`] is one queue of the broker under test. [`source_tests!`](crate::source_tests) makes a `#[test]` of
//! each promise:
//!
//! - The **source** alone: messages are handed over untouched, settled messages stay settled, and all others come again.
//! - The **consumer** on this source, in processes that the suite kills between any two steps: one recorded outcome for
//!   each event, and no run that the published promises do not allow.

mod consumer;
mod fixture;
#[macro_use]
mod list;
mod promises;
mod queue;
mod run;
mod stall;

#[doc(hidden)]
pub use self::run::__run;
pub use self::{
    fixture::{Broker, SourceAbility, SourceFixture},
    list::{ALL, SourcePromise},
};
