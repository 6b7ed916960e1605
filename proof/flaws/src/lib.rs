//! Everything that checks semel is checked itself: with stores that keep the protocol but for one flaw.
//!
//! A [`Flaw`] bends what a real step of [`semel_core::steps`] sees or writes. [`FlawedStore`] is a whole
//! store with one flaw, for the conformance kit; the model checker takes single steps by [`Flaw::step`].

mod flaw;
mod list;
mod step;
mod store;

pub use flaw::{Flaw, Quirk, Seen};
pub use list::{all, named};
pub use step::{Answer, Call};
pub use store::FlawedStore;
