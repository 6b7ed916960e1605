//! Shared parts of the benchmarks: requests, load over HTTP, and reports.

pub mod durable;
pub mod http;
pub mod load;
pub mod report;
