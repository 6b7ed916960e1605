//! Everything that checks semel is checked itself: with stores that keep the protocol but for one flaw.
//!
//! A [`Flaw`] bends what a real step of [`semel_core::steps`] sees or writes. [`FlawedStore`] is a whole
//! store with one flaw, for the conformance kit; the model checker takes single steps by [`Flaw::step`].

mod bug;
mod catalogue;
mod step;
mod store;

pub use bug::{Flaw, Quirk, Seen};
pub use catalogue::{all, named};
pub use step::{Answer, Call};
pub use store::FlawedStore;
