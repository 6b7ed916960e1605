//! The readers of what strangers send, fuzzed against readers that others wrote.
//!
//! Bounded by count and not by time, so that a run on a slow machine tests no less.

mod inputs;
mod json;
mod key;
mod tree;

/// Inputs for each reader.
const CASES: u32 = 100_000;
