//! Tests of the real binary over real sockets: what `semel gateway`, `semel worker` and the operator commands promise.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod client_disconnects;
mod conformance;
mod demo;
mod early_responses;
mod errors;
mod failures;
mod framing;
mod harness;
mod idle_connections;
mod odd_upstreams;
mod operators;
mod path_spellings;
mod principal;
mod proxying;
mod restarts;
mod rotation;
mod settings;
mod shared;
mod slow_clients;
mod startup;
mod uploads;
mod worker;
