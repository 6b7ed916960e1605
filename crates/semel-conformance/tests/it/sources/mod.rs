//! Tests of the source suite: the source in memory keeps every promise, and every planted bug breaks one.

mod memory;
mod memory_without_deadlines;
mod planted_bugs;
mod wrong_source;
