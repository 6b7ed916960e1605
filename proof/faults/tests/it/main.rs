//! The proxy does what its faults say, and stores keep their promises behind it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod proxy;
mod stores;
