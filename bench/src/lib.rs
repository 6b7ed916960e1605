//! What benchmarks share: the same requests, load over HTTP, and figures as text.

pub mod durable;
pub mod http;
pub mod load;
pub mod report;
