//! Sealing layer of semel: outcomes and labels are encrypted before any store sees them.
//!
//! ```
//! use semel_core::{Engine, MemoryStore};
//! use semel_sealed::{KeyRing, SealKeys, SealKey, Sealed};
//!
//! let text = SealKey::random("2026-11")?.line(); // kept in a file that only the service can read
//! let ring = KeyRing::new(SealKeys::parse(&text)?);
//! let engine = Engine::builder().store(Sealed::new(MemoryStore::new(), ring.clone())).build()?;
//! // Later, while it runs: the first key seals, all of them open.
//! let text = format!("{}\n{}", *SealKey::random("2026-12")?.line(), *text);
//! ring.rotate(SealKeys::parse(&text)?)?;
//! # drop(engine);
//! # Ok::<_, semel_core::Error>(())
//! ```
//!
//! - **All of an outcome is sealed**, and all labels; state, times and whether it was a success stay
//!   readable, because the store works with them.
//! - **Sealed bytes are bound to their record**: if they are moved to another key, they do not open.
//! - **A record that does not open is an error**. It is never replayed and never run again.
//!
//! `docs/stores/sealed.md` says which attacks this defends against, and which not.

mod error;
mod inspect;
mod key_file;
mod key_ring;
mod labels;
mod outcome;
mod seal;
mod seal_key;
mod seal_keys;
mod store;

pub use inspect::{Seal, Seals, seals_of};
pub use key_file::KeyFile;
pub use key_ring::KeyRing;
pub use seal_key::SealKey;
pub use seal_keys::SealKeys;
pub use store::Sealed;
