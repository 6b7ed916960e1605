//! The memory store: runs the protocol's steps under a lock per shard.
//!
//! Its records and bytes are bounded. When it is full it deletes expired records, then refuses new claims; it never
//! deletes a key that is owned or Unknown. All records are lost when the process ends.

mod budget;
mod config;
mod shard;
mod store;

#[cfg(test)]
mod tests;

pub use config::{MemoryStoreBuilder, WhenFull};
pub use store::MemoryStore;
