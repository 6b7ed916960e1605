//! Fuzz tests: the parsers of client input against independent parsers.
//!
//! Bounded by count and not by time, so that a slow machine tests as much as a fast one.

mod inputs;
mod json;
mod key;
mod tree;

/// Inputs for each parser.
const CASES: u32 = 100_000;
