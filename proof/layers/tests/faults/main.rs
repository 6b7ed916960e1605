//! What layers promise when one of their two servers is gone, silent or late.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod arbiter;
mod belonging;
mod failover;
mod load;
