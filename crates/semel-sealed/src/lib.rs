//! Sealing layer of semel: outcomes and labels are encrypted before any store sees them.
//!
//! ```
//! use semel_core::{Engine, MemoryStore};
//! use semel_sealed::{KeyRing, Keys, SealKey, Sealed};
//!
//! let text = SealKey::random("2026-11")?.line(); // kept in a file that only the service can read
//! let ring = KeyRing::new(Keys::parse(&text)?);
//! let engine = Engine::builder().store(Sealed::new(MemoryStore::new(), ring.clone())).build()?;
//! // Later, while it runs: the first key seals, all of them open.
//! let text = format!("{}\n{}", *SealKey::random("2026-12")?.line(), *text);
//! ring.rotate(Keys::parse(&text)?)?;
//! # drop(engine);
//! # Ok::<_, semel_core::Error>(())
//! ```
//!
//! - **All of an outcome is sealed**, and all labels; state, times and whether it was a success stay
//!   readable, because the store works with them.
//! - **Bound to its record**: sealed bytes that were moved to another key do not open.
//! - **What does not open is an error**, never an answer and never a reason to run again.
//!
//! What this defends against, and what not, is said in `docs/stores/sealed.md`.

mod error;
mod file;
mod inspect;
mod key;
mod keys;
mod labels;
mod outcome;
mod ring;
mod seal;
mod store;

pub use file::KeyFile;
pub use inspect::{Seal, Seals, seals_of};
pub use key::SealKey;
pub use keys::Keys;
pub use ring::KeyRing;
pub use store::Sealed;
