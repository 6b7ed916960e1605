//! What stores on servers share, beside the protocol itself.
//!
//! | | |
//! |---|---|
//! | reading a URL | [`decoded`], [`host_and_port`] |
//! | outliving the caller | [`on_background`], [`to_its_end`] |
//! | a runtime that was busy | [`in_time`] |
//! | connections near the caller | [`Lanes`], [`Queue`] |
//! | maps by hash or nonce | [`ByRandom`] |
//! | a value that is no record | [`mixed_up`], [`newer`], [`foreign`] |
//! | lists | [`listed`] |

#[cfg(not(all(test, shuttle)))]
mod background;
#[cfg(not(all(test, shuttle)))]
mod lanes;
mod list;
#[cfg(not(all(test, shuttle)))]
mod queue;
mod random;
mod store;
mod url;
mod value;

pub use crate::engine::background::in_time;
#[cfg(not(all(test, shuttle)))]
pub use background::{on_background, to_its_end};
#[cfg(not(all(test, shuttle)))]
pub use lanes::{Lane, Lanes};
pub use list::listed;
#[cfg(not(all(test, shuttle)))]
pub use queue::{Connected, Crew, Queue};
pub use random::{ByRandom, FirstBytes};
pub use url::{decoded, host_and_port};
pub use value::{foreign, mixed_up, newer};
