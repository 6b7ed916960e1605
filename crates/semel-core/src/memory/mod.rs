//! The memory store: the protocol's own steps under a lock per shard.
//!
//! Bounded by entries and bytes. When full it deletes what has expired, then refuses new claims;
//! it never drops a key that is owned or unknown. Everything is forgotten when the process ends.

mod budget;
mod config;
mod shard;
mod store;

#[cfg(test)]
mod tests;

pub use config::{MemoryStoreBuilder, WhenFull};
pub use store::MemoryStore;
