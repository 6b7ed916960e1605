//! The embedded store of semel: claims and outcomes in a folder, through crash and power loss.
//!
//! One process has the folder; no server is needed. A claim or an outcome is on the disk before it
//! is acknowledged; calls that come at the same time share one sync.
//!
//! ```text
//! callers ──► index ─────────────► answer        nothing changes: replay, busy, mismatch
//!    │                                ▲
//!    └──► batcher ──► writer ──► log ─┴─► index   one sync per batch, then shown and answered
//! ```
//!
//! - [`EmbeddedStore::open`] locks the folder, reads the log and takes every owner of an earlier
//!   process for lost.
//! - A torn end of the log was never acknowledged, and the next batch takes its location. Any other damage is an error that
//!   names the file: a store that skips what it cannot read forgets claims.
//! - A missing segment is an error that names it, also the newest one. When the folder or a file of it is removed or replaced
//!   while the store is open, all calls fail with `Unavailable` until it is back. A look at the folder that fails is logged, and
//!   refuses nothing.
//! - A copy of the folder needs its hidden files, too: `.segments` says up to which number there must be segments.
//! - On a full disk new claims are refused while owners still record their outcomes in what is left
//!   of the segment. When writing or syncing fails, nothing is acknowledged and the next batch takes
//!   that location.
//! - The folder's secret keys all hashes; it is made with the folder and never leaves it. A secret of your
//!   own takes its location, from the folder's first record on.
//!
//! The promise ends when the disk lies about a sync, when the folder is restored from a copy, or
//! when its files are changed by hand.

mod clock;
mod compaction;
mod config;
mod disk;
mod folder_watch;
mod hash_secret;
mod identity;
mod index;
mod log;
mod open;
mod request;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use config::EmbeddedStoreBuilder;
pub use store::EmbeddedStore;
