#![doc = include_str!("../docs/layers.md")]

mod arbiter;
mod cached;
pub(crate) mod circuit_breaker;
mod failover;
mod observed;

pub use arbiter::{Arbiter, MemoryReplicaCache, Replica, ReplicaCache};
pub use cached::{Cached, CachedBuilder};
pub use failover::{FailbackWindow, Failover, FailoverBuilder, UnprotectedKeys};
pub use observed::Observed;
