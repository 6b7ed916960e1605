//! What both benchmarks share: the same requests, and figures as text.

pub mod durable;
pub mod load;
pub mod report;
