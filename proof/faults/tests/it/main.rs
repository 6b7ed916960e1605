//! The proxy injects its faults, and stores keep their promises behind it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod proxy;
mod stores;
