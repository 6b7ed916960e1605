//! Tests of the Redis store on real servers.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod access;
// Outside of this folder, since the tests of layers over stores use it too.
#[path = "../common/mod.rs"]
mod common;
mod completion;
mod conformance;
mod http_conformance;
mod purge;
mod servers;
