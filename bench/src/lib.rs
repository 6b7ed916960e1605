//! Shared parts of the benchmarks: requests, events, load over HTTP, and reports.

pub mod durable;
pub mod events;
pub mod http;
pub mod load;
pub mod report;
