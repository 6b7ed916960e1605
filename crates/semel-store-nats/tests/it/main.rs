//! Tests of the NATS store on real servers.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod bucket;
mod cluster;
// Outside of this folder, since the tests of layers over stores use it too.
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod http_conformance;
mod jetstream;
mod reply_proxy;
mod servers;
