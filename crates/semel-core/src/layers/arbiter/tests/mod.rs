//! Tests of the arbiter while one of its two stores is slow, down or late.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod harness;
mod removal;
mod replay;
