//! The embedded store of semel: claims and outcomes in a folder, through crash and power loss.
//!
//! One process opens the folder; no server is needed. A claim or an outcome is on the disk before it is acknowledged;
//! concurrent calls share one sync.
//!
//! ```text
//! callers ──► index ─────────────► reply         nothing changes: replay, busy, mismatch
//!    │                                ▲
//!    └──► batcher ──► writer ──► log ─┴─► index   one sync per batch, then the index, then the reply
//! ```
//!
//! - [`EmbeddedStore::open`] locks the folder, reads the log and treats every owner of an earlier process as lost.
//! - A torn end of the log was never acknowledged, and the next batch overwrites it. Any other damage is an error that
//!   names the file: a store that skips unreadable records forgets claims.
//! - A missing segment is an error that names it, also the newest one. When the folder or one of its files is removed
//!   or replaced while the store is open, all calls fail with `Unavailable` until it is back. A failed check of the folder
//!   is logged, and no call fails because of it.
//! - A copy of the folder needs its hidden files, too: `.segments` says up to which number there must be segments.
//! - On a full disk new claims are refused while owners still record their outcomes in what is left
//!   of the segment. When writing or syncing fails, nothing is acknowledged and the next batch takes
//!   the position of the failed one.
//! - All key hashes use the folder's secret, which is made with the folder and never leaves it. You can set a secret of
//!   your own instead, before the folder's first record.
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
