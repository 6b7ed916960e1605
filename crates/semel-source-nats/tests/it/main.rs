//! Tests of the NATS source, dead letters and publisher on real servers.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod check;
mod cluster;
mod common;
mod conformance;
mod connect;
mod dead_letters;
mod given_up;
mod publisher;
mod receive;
mod redrive;
mod reply;
mod restart;
mod settle;
