//! Planted bugs: stores that follow the protocol except for one deliberate defect. The tests of semel are tested with
//! them.
//!
//! A [`PlantedBug`] changes what a real step of [`semel_core::steps`] sees or writes. [`BuggyStore`] is a whole store
//! with one bug, for the conformance suite; the model checker runs single steps by [`PlantedBug::step`].

mod bug;
mod catalogue;
mod step;
mod store;

pub use bug::{PlantedBug, StepInput, StoreBug};
pub use catalogue::{all, named};
pub use step::{StepReply, StepRequest};
pub use store::BuggyStore;
